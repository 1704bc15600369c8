"""What an adversary learns, beside what is said: see `audit`."""
