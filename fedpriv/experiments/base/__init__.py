"""Level 1: files, JSON, provenance, signals: what every room needs."""
