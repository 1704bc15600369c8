"""python -m experiments.report: as `fedpriv report`."""

import sys

from fedpriv.experiments.commands.report import main

if __name__ == "__main__":
    sys.exit(main())
