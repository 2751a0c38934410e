"""What decorators register: views, reconcile functions, indices, handlers, timers, daemons, sources."""
