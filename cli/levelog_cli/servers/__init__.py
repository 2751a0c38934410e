"""NATS, database and cluster behind a command: given by URL or embedded, and checked."""
