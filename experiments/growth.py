"""python -m experiments.growth [--repeats N] [--output DIR] [--json]: how a round's time and memory grow."""

import sys

from experiments.speed.growth import main

if __name__ == "__main__":
    sys.exit(main())
