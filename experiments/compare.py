"""python -m experiments.compare: as `fedpriv compare`."""

import sys

from fedpriv.experiments.commands.compare import main

if __name__ == "__main__":
    sys.exit(main())
