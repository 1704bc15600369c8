"""python -m experiments.race [--datasets D ...] [--entrants E ...] [--output DIR]: who is best at one budget?"""

import sys

from experiments.search.race import main

if __name__ == "__main__":
    sys.exit(main())
