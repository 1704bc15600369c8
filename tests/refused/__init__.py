"""What is refused, as a table: `test_refused.py` holds the law, each module here the rows of a part of the house."""
