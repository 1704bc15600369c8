"""python -m experiments.run [CONFIG] [--field value ...]: train, show, record; --resume FOLDER goes on."""

import sys

from experiments.training.run import main

if __name__ == "__main__":
    sys.exit(main())
