"""Measurements against a real kube-apiserver, PostgreSQL and nats-server; `make bench` runs them all."""
