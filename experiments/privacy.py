"""python -m experiments.privacy [CONFIG] [options] [--field value ...]: what a config costs; trains nothing."""

import sys

from experiments.accounting.privacy import main

if __name__ == "__main__":
    sys.exit(main())
