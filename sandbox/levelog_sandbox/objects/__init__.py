"""Stored objects: verbs, revisions, watches, pages."""
