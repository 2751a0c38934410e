"""The parts of the state machine that checks the invariants of handlers of edges, beside those of levels."""
