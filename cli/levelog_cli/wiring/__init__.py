"""What runs: connections, tasks and rooms, put together for one command."""
