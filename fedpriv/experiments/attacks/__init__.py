"""Level 6: what an adversary learns: audits and inversion."""
