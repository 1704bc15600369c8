"""What an adversary learns, beside what is said: see `experiments.audit.__main__`."""
