"""Tests of algorithms, and of their parts made by hand: whether they do what they say."""
