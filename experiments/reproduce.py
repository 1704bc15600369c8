"""python -m experiments.reproduce PAPER ITEM [--scale S]: a table or a figure of a paper, published beside measured."""

import sys

from experiments.papers.reproduce.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
