"""State read from its tables and written to them; what folded records end."""
