"""Level 3: what a run folder holds, writing and reading it, TensorBoard and W&B."""
