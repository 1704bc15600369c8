"""python -m experiments.benchmark_gpu [--minutes M] [--data-dir DIR] [--tiny]: what a GPU is to tell, in one call"""

import sys

from experiments.speed.gpu import main

if __name__ == "__main__":
    sys.exit(main())
