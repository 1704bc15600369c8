"""The images that a server reconstructs: see `inversion`."""
