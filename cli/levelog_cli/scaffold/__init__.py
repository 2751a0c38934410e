"""What `levelog init` makes: a small operator with tests, its definition and what runs it."""
