"""python -m experiments.scale_out [CONFIG ...] [--clients N] [--repeats N] [--json]: rounds over several hosts."""

import sys

from experiments.speed.scale_out import main

if __name__ == "__main__":
    sys.exit(main())
