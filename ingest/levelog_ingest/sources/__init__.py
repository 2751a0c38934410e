"""External sources: their functions are called, and what differs from what the log holds is recorded."""
