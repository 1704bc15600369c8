"""python -m experiments.privacy: as `fedpriv privacy`."""

import sys

from fedpriv.experiments.commands.privacy import main

if __name__ == "__main__":
    sys.exit(main())
