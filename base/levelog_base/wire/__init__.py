"""What rooms exchange: records, envelopes, subjects, names, canonical JSON."""
