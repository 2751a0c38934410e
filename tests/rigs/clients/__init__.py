"""What other programs do with an API server, step by step, as the answers that they were given."""
