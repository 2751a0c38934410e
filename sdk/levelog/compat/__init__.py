"""Kopf files, on levelog."""
