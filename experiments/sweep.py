"""python -m experiments.sweep: as `fedpriv sweep`."""

import sys

from fedpriv.experiments.commands.sweep import main

if __name__ == "__main__":
    sys.exit(main())
