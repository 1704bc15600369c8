"""What a view sees of a unit as one value, in plain data, and what is proved of it."""
