"""What `levelog doctor` examines, and its findings."""
