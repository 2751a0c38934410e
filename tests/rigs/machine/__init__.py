"""The parts of the state machines that check the invariants: a small world around the real fold, decide and sending."""
