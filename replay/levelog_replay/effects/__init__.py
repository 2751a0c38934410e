"""Recorded calls of handlers, timers and effects, made again and compared."""
