"""python -m experiments.benchmark_page FILE ... [--output DIR]: a table and two pictures of benchmarks."""

import sys

from experiments.speed.page import main

if __name__ == "__main__":
    sys.exit(main())
