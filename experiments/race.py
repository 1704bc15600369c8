"""python -m experiments.race: as `fedpriv race`."""

import sys

from fedpriv.experiments.commands.race import main

if __name__ == "__main__":
    sys.exit(main())
