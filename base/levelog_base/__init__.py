"""What all rooms share: the records of the log, canonical form, errors, and secrets that are removed."""
