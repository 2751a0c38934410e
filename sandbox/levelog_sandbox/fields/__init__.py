"""Fields of objects: ownership, patches, paths."""
