"""The benchmark's rounds in PyTorch and in other simulators, each in a process of its own.

A file for each rival: its `WORKLOADS` maps the workloads that it has to functions `(Settings) -> Baseline`, which give
its training and nothing else. `runner` starts a rival, in an environment of its file of requirements where it has one,
and asks for rounds in turn; `comparison` sets the numbers side by side.
"""
