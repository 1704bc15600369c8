"""python -m experiments.sweep [CONFIG] --grid F=a,b ... [--field value ...] [--output DIR] [--json]: a grid of runs."""

import sys

from experiments.search.sweep import main

if __name__ == "__main__":
    sys.exit(main())
