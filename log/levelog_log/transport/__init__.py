"""NATS: addresses, credentials, connections, and a faster path through nats-py."""
