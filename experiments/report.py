"""python -m experiments.report RUN [RUN ...] [--output FILE] [--paper DIR]: what was recorded, as one HTML page."""

import sys

from experiments.tables.report.page import main

if __name__ == "__main__":
    sys.exit(main())
