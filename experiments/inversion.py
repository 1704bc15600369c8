"""python -m experiments.inversion [options]: the images that a server reconstructs."""

import sys

from experiments.attacks.inversion.inversion import main

if __name__ == "__main__":
    sys.exit(main())
