"""Calls record handlers, and timers without records."""
