"""The settings of the papers' experiments, and what the papers print."""
