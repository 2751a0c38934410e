"""The operator that is measured: each Web's status has to say how many replicas its spec asks for."""

from collections.abc import Iterator

from levelog import Intent, Level, Operator, Resource, Struct, patch_status

op = Operator("statuses")


class Spec(Struct):
    replicas: int = 1


class Status(Struct):
    replicas: int | None = None


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec
    status: Status | None = None


@op.view
def statuses(web: Web) -> Level[int | None]:
    return Level(desired=web.spec.replicas, actual=web.status.replicas if web.status else None)


@op.reconcile(statuses)
def write(web: Web) -> Iterator[Intent]:
    yield patch_status(web, {"replicas": web.spec.replicas})
