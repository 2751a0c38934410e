"""Recorded history, decided again. Nothing here writes to a cluster, the log or its tables."""
