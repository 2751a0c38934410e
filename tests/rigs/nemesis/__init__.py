"""A nemesis: faults drawn by a seed, against every server and process, while an operator works."""
