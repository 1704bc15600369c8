"""How fast rounds are, beside other libraries and over several hosts: the parts of experiments.benchmark."""
