"""How a run of all tests goes: what it is spread over."""
