"""Level 5: trains a config into a run folder, alone or in several processes."""
