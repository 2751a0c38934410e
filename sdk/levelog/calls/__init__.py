"""Users' functions, called: limits, errors, and what they read."""
