"""Inputs of decisions read, decisions written."""
