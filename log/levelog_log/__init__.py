"""The log of a cluster."""

from levelog_log.websockets import load_nats

load_nats()
