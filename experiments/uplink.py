"""python -m experiments.uplink: as `fedpriv uplink`."""

import sys

from fedpriv.experiments.commands.uplink import main

if __name__ == "__main__":
    sys.exit(main())
