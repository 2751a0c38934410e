"""Who may commit: leases, scopes, promotion of code; pruning."""
