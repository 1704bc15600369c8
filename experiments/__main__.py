"""python -m experiments [COMMAND ...]: as `fedpriv`."""

import sys

from fedpriv.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
