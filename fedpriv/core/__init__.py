"""What everything else is made of."""
