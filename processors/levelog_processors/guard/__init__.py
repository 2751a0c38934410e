"""Limits of users' pure functions: time, and no I/O."""
