"""How a run of all tests goes: where it writes, what it is spread over, and what ends it."""
