"""The log of a cluster."""

from levelog_log.transport.websockets import load_nats

load_nats()
