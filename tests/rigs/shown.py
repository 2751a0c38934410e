"""An operator that says in the status of each Web how many replicas its spec asks for: one change, one write."""

from collections.abc import Iterator

from levelog import Intent, Level, Operator, Resource, Struct, patch_status


class WebSpec(Struct):
    replicas: int = 0


class WebStatus(Struct):
    replicas: int = 0


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec
    status: WebStatus = WebStatus()


def shown_webs(name: str) -> Operator:
    """The operator, by a name of its own."""
    op = Operator(name)

    @op.view
    def shown(web: Web) -> Level[int]:
        return Level(web.spec.replicas, web.status.replicas)

    @op.reconcile(shown)
    def show(web: Web) -> Iterator[Intent]:
        yield patch_status(web, {"replicas": web.spec.replicas})

    return op
