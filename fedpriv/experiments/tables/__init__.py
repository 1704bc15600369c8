"""Level 4: results as tables, figures and a report."""
