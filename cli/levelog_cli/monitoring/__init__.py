"""What `--listen` serves: probes and metrics; what holds up the event loop; and spans for OpenTelemetry."""
