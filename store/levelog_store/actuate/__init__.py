"""The outbox: claims, results, and heartbeats of actuators."""
