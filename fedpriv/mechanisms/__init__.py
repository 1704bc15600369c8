"""What bounds a contribution and perturbs a sum, of updates or of records' gradients."""
