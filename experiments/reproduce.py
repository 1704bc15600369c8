"""python -m experiments.reproduce: as `fedpriv reproduce`."""

import sys

from fedpriv.experiments.commands.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
