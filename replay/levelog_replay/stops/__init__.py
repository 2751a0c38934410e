"""Where a replay stops, and the debugger there."""
