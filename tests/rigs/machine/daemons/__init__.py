"""The parts of the state machine that checks the invariant of daemons, on several actuators."""
