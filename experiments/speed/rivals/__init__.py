"""The benchmark's rounds in PyTorch and in other simulators, each in a process of its own.

A file per rival and workload: its `build(Settings)` gives a `Baseline`, which is its training and nothing else. `child`
runs one of them, `rival` asks them for rounds in turn, `environments` builds the simulators' virtual environments,
`examples` makes the data, `memory` measures theirs and ours, `comparison` sets the numbers side by side.
"""
