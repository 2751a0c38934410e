"""What `--listen` serves: probes and metrics; and spans for OpenTelemetry."""
