"""What happened to objects, and why: the log and the decisions, read and told. Writes nothing."""
