"""New code while an operator runs: watched files, trials, restarts, and what `levelog dev` shows."""
