"""What has to be trusted for the epsilon of a plain run, and the doors by which all else comes in."""
