"""What records change, by pure functions."""
