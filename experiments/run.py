"""python -m experiments.run: as `fedpriv run`."""

import sys

from fedpriv.experiments.commands.run import main

if __name__ == "__main__":
    sys.exit(main())
