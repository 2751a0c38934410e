"""Mistakes in views and indices: both type checkers report each line that is marked, and no other."""

from collections.abc import Iterator

from levelog import Index, Level, Objects, Operator, Resource, Struct

op = Operator("webs")


class WebSpec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Pod(Resource, version="v1", plural="pods"):
    pass


@op.index  # error: gives names, not pairs
def names(pod: Pod) -> Iterator[str]:
    yield pod.metadata.name


@op.index(labels={"app": 1})  # error: a label is a text
def sizes(pod: Pod) -> Iterator[tuple[str, int]]:
    yield pod.metadata.name, pod.metadata.size  # error: not in the class


@op.index(errors="raise")  # error: block or ignore
def others(pod: Pod) -> dict[str, int]:
    return {}


@op.view
def pods(web: Web, sizes: Index[str, int]) -> Level[int]:
    names: list[str] = list(sizes[web.metadata.uid])  # error: values are integers
    total = sum(sizes[web.metadata.uid])
    sizes["a"] = total  # error: read-only
    sizes[web.spec.replicas]  # error: keys are texts
    return Level(desired=len(names), actual="three")  # error: two types


@op.view
def replicas(web: Web) -> Level[int]:
    return Level(web.spec.replica, 1)  # error: not in the class


@op.view  # error: returns no level
def plain(web: Web) -> int:
    return web.spec.replicas


@op.view(delete=True)  # error: no such option
def deleted(web: Web) -> Level[int]:
    return Level(1, 1, recheck=None)  # error: no such parameter


@op.view(deleting="yes")  # error: a boolean
def sure(web: Web) -> Level[int]:
    return Level(1, 1)


@op.view(reads=Pod)  # error: a list of classes
def single(web: Web, objects: Objects) -> Level[int]:
    pod = objects.get(Pod, "a")
    name = pod.metadata.name  # error: it may not be there
    objects.get("Pod", "a")  # error: a class
    return Level(len(name), 1)
