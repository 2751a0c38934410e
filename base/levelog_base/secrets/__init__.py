"""Redaction of secret values: rules, keyed hashes, and texts of errors."""
