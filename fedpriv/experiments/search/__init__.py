"""Level 6: sweeps, choosing among their points, the race of algorithms at equal epsilon."""
