"""The same for Kopf: each Web's status says how many replicas its spec asks for. Runs in an environment of its own.

It is tuned: no wait for consistency, all handlers of an object in one pass, larger chunks. BENCH_CALLS is a file that
gets one byte for each call. BENCH_FIELD is the field.
"""

import os
from typing import Any

import kopf

FIELD = os.environ.get("BENCH_FIELD", "replicas")
calls = os.open(os.environ["BENCH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.consistency_timeout = 0
    settings.watching.chunk_size = 500
    kopf.set_default_lifecycle(kopf.lifecycles.all_at_once)


@kopf.on.create("example.com", "v1", "webs")
@kopf.on.update("example.com", "v1", "webs")
def write(spec: Any, status: Any, patch: Any, **_: Any) -> None:
    os.write(calls, b".")
    if status.get(FIELD) != spec.get("replicas"):
        patch.status[FIELD] = spec.get("replicas")
