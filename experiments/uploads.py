"""python -m experiments.uploads: as `fedpriv uploads`."""

import sys

from fedpriv.experiments.commands.uploads import main

if __name__ == "__main__":
    sys.exit(main())
