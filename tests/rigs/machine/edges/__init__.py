"""The parts of the state machine that checks the invariants of edge handlers, beside those of levels."""
