"""What the log shows, in memory."""
