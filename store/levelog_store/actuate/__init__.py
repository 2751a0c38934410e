"""The outbox: claims, results, and presence of actuators."""
