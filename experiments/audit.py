"""python -m experiments.audit: as `fedpriv audit`."""

import sys

from fedpriv.experiments.commands.audit import main

if __name__ == "__main__":
    sys.exit(main())
