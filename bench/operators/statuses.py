"""The operator that is measured: each Web's status has to say how many replicas its spec asks for.

Copies of this file are operators of their own, which say it in a field that has the name of the file.
"""

from collections.abc import Iterator
from pathlib import Path

from levelog import Intent, Level, Operator, Resource, Struct, patch_status

NAME = Path(__file__).stem
FIELD = "replicas" if NAME == "statuses" else NAME

op = Operator(NAME)


class Spec(Struct):
    replicas: int = 1


class Status(Struct, rename={"replicas": FIELD}):
    replicas: int | None = None


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec
    status: Status | None = None


@op.view
def statuses(web: Web) -> Level[int | None]:
    return Level(desired=web.spec.replicas, actual=web.status.replicas if web.status else None)


@op.reconcile(statuses)
def write(web: Web) -> Iterator[Intent]:
    yield patch_status(web, {FIELD: web.spec.replicas})
