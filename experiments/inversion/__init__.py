"""The images that a server reconstructs: see `experiments.inversion.__main__`."""
