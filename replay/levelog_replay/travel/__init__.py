"""History as it could have been: changed, bisected, reordered."""
