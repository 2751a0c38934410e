"""Bundles: history in one file, written, read, and used as a test."""
