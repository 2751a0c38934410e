"""Why programs wake: read from the audit log of their cluster."""
