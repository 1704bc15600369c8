"""python -m experiments.benchmark_cifar10 [--turns N] [--rounds N]: pfl_cifar10's rounds beside pfl's, on CPU."""

import sys

from experiments.speed.cifar10_speed import main

if __name__ == "__main__":
    sys.exit(main())
