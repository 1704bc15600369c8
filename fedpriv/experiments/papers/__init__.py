"""Level 7: the settings of the papers' experiments, and what the papers print."""
