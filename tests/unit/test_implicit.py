from typing import Any

from levelog import Level, Objects, Operator, Resource, Struct
from levelog_processors.bound import BoundView
from levelog_processors.decide.viewcalls import Evaluation
from levelog_processors.fold.entries import index_entries
from levelog_processors.fold.foldrules import Fold
from levelog_processors.program import Program
from levelog_processors.sqlviews import sql_views
from levelog_store.fold.changes import PriorState
from levelog_store.rows import Bucket, IndexKey, WholeIndex
from rigs.evaluating import evaluation_of
from rigs.typed import Pod, Web
from rigs.webs import logged, pod, web


class Node(Resource, version="v1", plural="nodes", scope="Cluster"):
    pass


op = Operator("webs")


@op.view(reads=[Pod, Node, Pod])
def images(web: Web, objects: Objects) -> Level[list[str]]:
    found = objects.get(Pod, f"{web.metadata.name}-0")
    node = objects.get(Node, "n1", namespace="of no effect")
    return Level([], [*(found.spec.containers[0].image if found else "none",), node.metadata.name if node else "none"])


@op.view
def undeclared(web: Web) -> Level[int]:
    return Level(1, 1)


def tables(entries: dict[IndexKey, bytes]) -> Any:
    class Tables:
        def bucket(self, place: IndexKey) -> Bucket:
            return Bucket(3, (entries[place],)) if place in entries else Bucket(-1)

        def whole(self, index: str) -> WholeIndex:
            raise NotImplementedError(index)

    return Tables()


def evaluated(view: BoundView, entries: dict[IndexKey, bytes], body: bytes = web("shop", 1).body) -> Evaluation:
    evaluation = evaluation_of(view, body, tables(entries))
    evaluation.call()
    return evaluation


def test_each_class_is_an_index_of_its_own_that_is_watched_and_has_no_sql_view() -> None:
    program = Program([op])
    assert set(program.indices) == {"webs/@Pod", "webs/@Node"}
    assert set(program.watched) == {"webs.example.com", "pods", "nodes"}
    assert program.views["webs/images"].reads == {"webs.example.com", "pods", "nodes"}
    assert program.views["webs/images"].sources == {"webs/@Pod", "webs/@Node"}
    assert [view.name for view in sql_views(program)] == ["images", "undeclared"]


def test_the_fold_keeps_what_the_class_names_under_namespace_and_name() -> None:
    program = Program([op])
    first = Fold(program, "webs", PriorState()).records(logged([pod("shop-0", 2, annotations={"n": "1"})]))
    [((_, _, name, _), entry)] = first.entries.items()
    assert entry is not None
    assert (name, entry.index, entry.key) == ("pods/default/shop-0", "webs/@Pod", '["default","shop-0"]')
    assert b'"image":"a"' in entry.value
    prior = PriorState(entries_of=lambda _: [entry])
    again = Fold(program, "webs", prior).records(logged([pod("shop-0", 3, annotations={"n": "2"})]))
    assert again.keys == {}
    changed = Fold(program, "webs", prior).records(logged([pod("shop-0", 4, image="b")], first=4))
    assert changed.keys["webs/@Pod", '["default","shop-0"]'] == 4


def test_an_object_is_decoded_by_its_class_and_an_absent_one_is_a_dependency_too() -> None:
    view = Program([op]).views["webs/images"]
    place = ("webs/@Pod", '["default","shop-0"]')
    found = evaluated(view, {place: pod("shop-0", 2, image="b").body})
    assert found.result.error == ""
    assert found.result.actual == b'["b","none"]'
    assert found.reads.versions == {place: 3, ("webs/@Node", '["","n1"]'): -1}


def test_an_object_that_the_class_cannot_decode_fails_who_looks_it_up_and_nobody_else() -> None:
    program = Program([op])
    view = program.views["webs/images"]
    broken = pod("shop-0", 2).body.replace(b'"image":"a"', b'"image":1')
    [entry] = index_entries(program.indices["webs/@Pod"], broken, [], "pods/default/shop-0")
    assert (entry.key, entry.error) == ('["default","shop-0"]', "")
    assert view.guards == {}
    failed = evaluated(view, {(entry.index, entry.key): entry.value}).result
    assert (
        "pods/default/shop-0 cannot be read as Pod: Expected `str`, got `int` - at `$.spec.containers" in failed.error
    )
    other = evaluated(view, {(entry.index, entry.key): entry.value}, web("other", 1).body)
    assert other.result.error == ""


def test_a_class_that_is_not_declared_is_named_with_the_view_and_what_to_write() -> None:
    other = Operator("webs")

    @other.view(reads=[Node])
    def pods(web: Web, objects: Objects) -> Level[int]:
        objects.get(Pod, "shop-0")
        return Level(1, 1)

    evaluation = evaluated(Program([other]).views["webs/pods"], {})
    assert (
        "view pods looks up Pod 'shop-0' without declaring that it reads Pod: write @op.view(reads=[Node, Pod])"
        in evaluation.result.error
    )


def test_a_parent_without_a_namespace_has_to_say_which_one_it_means() -> None:
    other = Operator("nodes")

    @other.view(reads=[Pod])
    def pods(node: Node, objects: Objects) -> Level[int]:
        return Level(1, 1 if objects.get(Pod, "shop-0") else 0)

    evaluation = evaluated(Program([other]).views["nodes/pods"], {}, b'{"metadata":{"name":"n1"}}')
    assert "write objects.get(Pod, 'shop-0', namespace=…)" in evaluation.result.error


def test_a_namespace_that_is_not_watched_is_refused_and_not_taken_for_empty() -> None:
    other = Operator("webs")

    @other.view(reads=[Pod, Node])
    def pods(web: Web, objects: Objects) -> Level[int]:
        objects.get(Node, "n1")
        objects.get(Pod, "shop-0")
        return Level(1, 1 if objects.get(Pod, "shop-0", namespace="elsewhere") else 0)

    view = Program([other]).views["webs/pods"]
    namespaces = {"pods": ("default",), "nodes": ("default",)}
    evaluation = evaluation_of(view, web("shop", 1).body, tables({}), namespaces=namespaces)
    evaluation.call()
    assert "looks up Pod 'shop-0' in namespace elsewhere, but levelog watches default alone" in evaluation.result.error


def test_other_fields_of_a_class_are_other_code_of_the_views_that_read_it() -> None:
    def fingerprint(*, short: bool) -> str:
        class Some(Struct):
            a: int

        class Thing(Resource, plural="things"):
            if not short:
                spec: Some

        other = Operator("webs")

        @other.view(reads=[Thing])
        def view(web: Web, objects: Objects) -> Level[int]:
            return Level(1, 1)

        return other.views["view"].fingerprint

    assert fingerprint(short=True) != fingerprint(short=False)
    assert fingerprint(short=True) == fingerprint(short=True)
