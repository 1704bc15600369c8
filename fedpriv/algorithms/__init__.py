"""The algorithms, one file per paper or rival."""
