"""Attacks: what an adversary learns from what it sees, measured instead of trusted."""
