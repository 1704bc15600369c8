"""What runs have recorded, as one HTML page: see `experiments.report.__main__`."""
