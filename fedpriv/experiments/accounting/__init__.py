"""Level 4: what a config costs, and the noise or rounds of a budget."""
