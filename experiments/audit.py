"""python -m experiments.audit [CONFIG] [options] [--field value ...]: what an adversary learns, beside what is said."""

import sys

from experiments.attacks.audit.audit import main

if __name__ == "__main__":
    sys.exit(main())
