"""python -m experiments.tune CONFIG [--values V ...] [--folds F] [--field value ...]: which step size is best?"""

import sys

from experiments.search.tune import main

if __name__ == "__main__":
    sys.exit(main())
