"""Positions and held calls of handlers without records."""
