"""What travels, and in how many bits."""
