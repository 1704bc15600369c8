"""python -m experiments.uploads FOLDER [FOLDER ...] --accuracy A: messages that cohorts sent to reach an accuracy."""

import sys

from experiments.tables.uploads import main

if __name__ == "__main__":
    sys.exit(main())
