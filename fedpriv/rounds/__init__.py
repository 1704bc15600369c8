"""What a round is made of."""
