"""Level 5: how fast rounds are, beside other libraries and over several hosts: the parts of experiments.benchmark."""
