"""Answers as text, tables, timelines and JSON."""
