"""Recorded history, decided again in a scratch database. Nothing here writes to a cluster, the log or its tables."""
