"""python -m experiments.benchmark [--workload W] [--torch] [--peers] [--json]: how fast a round is on this machine."""

import sys

from experiments.speed.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
