"""python -m experiments.inversion: as `fedpriv inversion`."""

import sys

from fedpriv.experiments.commands.inversion import main

if __name__ == "__main__":
    sys.exit(main())
