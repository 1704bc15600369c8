"""The rounds of `experiments.benchmark` in PyTorch and in other simulators, each in a process of its own.

A file per rival and workload: its `build(Settings)` gives a `Baseline`. `child` runs one of them, `rivals` asks them
for rounds in turn, `environments` builds the simulators' virtual environments, `memory` measures theirs and ours,
`comparison` sets the numbers side by side.
"""
