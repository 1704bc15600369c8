"""What runs have recorded, as one HTML page: see `page`."""
