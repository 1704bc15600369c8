"""python -m experiments.compare FOLDER [FOLDER ...] [--output FILE ...]: runs side by side, as tables and figures."""

import sys

from experiments.tables.compare import main

if __name__ == "__main__":
    sys.exit(main())
