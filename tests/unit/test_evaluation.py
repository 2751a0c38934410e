from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Index, Level, Operator
from levelog.handlers.indexers import OnError
from levelog_base.wire.canonical import canonical
from levelog_processors.bound import BoundView
from levelog_processors.decide.lookups import digest_of
from levelog_processors.decide.viewcalls import Evaluation
from levelog_processors.keys import canonical_key
from levelog_processors.program import Program
from levelog_store.rows import ERRORS, Bucket, IndexKey, WholeIndex
from rigs.evaluating import evaluation_of
from rigs.kinds import Pod
from rigs.typed import Web
from rigs.webs import web


class Buckets:
    """What indices hold."""

    def __init__(
        self, values: Mapping[IndexKey, Sequence[object]], *, failing: Mapping[IndexKey, Sequence[object]] | None = None
    ) -> None:
        self.values = values
        self.failing = {place: tuple(map(canonical, errors)) for place, errors in (failing or {}).items()}

    def whole(self, index: str) -> WholeIndex:
        held = {key: tuple(map(canonical, values)) for (name, key), values in self.values.items() if name == index}
        errors = tuple(error for (name, _), errors in self.failing.items() if name == index for error in errors)
        return WholeIndex(versions={"*0": 1}, buckets=held, errors=errors)

    def bucket(self, place: IndexKey) -> Bucket:
        values = self.values.get(place)
        errors = self.failing.get(place, ())
        return Bucket(-1, (), errors) if values is None else Bucket(7, tuple(map(canonical, values)), errors)


op = Operator("webs")


@op.index
def sizes(pod: Pod) -> dict[str, int]:
    return {pod.metadata.name: 1}


@op.view
def two_reads(web: Web, sizes: Index[str, int]) -> Level[int]:
    first = sum(sizes["a"])
    return Level(web.spec.replicas, first + sum(sizes["b" if first else "c"]))


@op.view
def all_reads(web: Web, sizes: Index[str, int]) -> Level[dict[str, int]]:
    return Level({}, {key: sum(sizes[key]) for key in sizes})


@op.view(of=Web)
def plain_parts(web: Mapping[str, Any]) -> Level[Any]:
    return Level({"spec": web["spec"]}, {"spec": web["spec"] | {"replicas": 0}})


@op.view
def raises(web: Web, sizes: Index[str, int]) -> Level[int]:
    return Level(1, len(sizes["a"]) // len(sizes["nothing"]))


@op.view
def many_reads(web: Web, sizes: Index[str, int]) -> Level[int]:
    return Level(0, sum(len(sizes[str(number)]) for number in range(web.spec.replicas)))


@op.view
def large(web: Web) -> Level[list[str]]:
    return Level([], ["x" * 1022] * web.spec.replicas)


@op.view
def large_desired(web: Web) -> Level[list[str]]:
    return Level(["x" * 1022] * web.spec.replicas, [])


program = Program([op])


def view(name: str) -> BoundView:
    return program.views[f"webs/{name}"]


def key(text: str) -> IndexKey:
    return ("webs/sizes", canonical_key(text))


def called(view: BoundView, body: bytes, memory: Buckets) -> Evaluation:
    evaluation = evaluation_of(view, body, memory)
    evaluation.call()
    return evaluation


LEFT_OUT: IndexKey = ("webs/sizes", ERRORS)


def left_out(*names: str) -> list[dict[str, str]]:
    return [{"object": f"pods/default/{name}", "error": "KeyError: 'x'"} for name in names]


def test_reads_are_recorded_with_absent_keys_and_their_versions() -> None:
    tables = Buckets({key("a"): [1]})
    evaluation = called(view("two_reads"), web("w", 1, replicas=3).body, tables)
    assert evaluation.result.level is not None
    assert (evaluation.result.level.desired, evaluation.result.level.actual) == (3, 1)
    assert evaluation.reads.versions == {LEFT_OUT: -1, key("a"): 7, key("b"): -1}


def test_what_was_read_before_an_exception_is_kept() -> None:
    evaluation = called(view("raises"), web("w", 1).body, Buckets({key("a"): [1]}))
    assert evaluation.result.level is None
    assert evaluation.result.error.startswith("view webs/raises: ZeroDivisionError")
    assert set(evaluation.reads.versions) == {LEFT_OUT, key("a"), key("nothing")}


def test_reading_a_whole_index_depends_on_its_parts_and_not_on_each_key() -> None:
    evaluation = called(view("all_reads"), web("w", 1).body, Buckets({key("a"): [1], key("b"): [2, 3]}))
    assert evaluation.result.level is not None
    assert evaluation.result.level.actual == {"a": 1, "b": 5}
    assert set(evaluation.reads.versions) == {LEFT_OUT, ("webs/sizes", "*0")}


def test_what_a_plain_parent_gives_to_a_level_is_plain_and_counts_as_read() -> None:
    evaluation = called(view("plain_parts"), web("w", 1, replicas=3).body, Buckets({}))
    assert evaluation.result.level is not None
    assert type(evaluation.result.level.desired["spec"]) is dict
    assert type(evaluation.result.level.actual) is dict
    assert evaluation.result.level.drift.changed == {"spec"}
    assert evaluation.result.desired == b'{"spec":{"image":"a","replicas":3}}'
    assert evaluation.result.fields_read is not None
    assert b'["whole","spec"]' in evaluation.result.fields_read
    other = called(view("plain_parts"), web("w", 2, replicas=4).body, Buckets({}))
    assert (other.result.fields_read, other.result.inputs) != (evaluation.result.fields_read, evaluation.result.inputs)
    assert other.result.fields_read == evaluation.result.fields_read


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("many_reads", 9_999, "read more than 10,000 keys, the last of index webs/sizes: read the index as a whole"),
        ("large", 8_184, "actual has 8,389,626 bytes as JSON; 8,388,608 are allowed"),
        ("large_desired", 8_184, "desired has 8,389,626 bytes as JSON; 8,388,608 are allowed"),
    ],
)
def test_a_view_that_takes_more_than_one_level_may_cost_has_failed(name: str, most: int, said: str) -> None:
    known = Buckets({key(str(number)): [] for number in range(10_001)})
    errors: list[str] = []
    for replicas in (most, most + 1):
        evaluation = called(view(name), web("w", 1, replicas=replicas).body, known)
        errors.append(evaluation.result.error)
    assert errors == ["", f"view webs/{name}: {said}"]


@pytest.mark.parametrize("name", ["two_reads", "raises"])
def test_a_view_that_reads_old_entries_is_blocked_whatever_it_makes_of_them(name: str) -> None:
    held = Buckets({key("a"): [1]}, failing={key("a"): left_out("p")})
    seen = evaluation_of(view(name), web("w", 1).body, held).call()
    assert seen.blocked == "index webs/sizes fails for pods/default/p: KeyError: 'x'"
    assert (seen.error, seen.level) == ("", None)


def test_a_view_of_a_whole_index_goes_on_with_old_entries_and_says_so() -> None:
    held = Buckets({key("a"): [1]}, failing={key("a"): left_out("p")})
    seen = evaluation_of(view("all_reads"), web("w", 1).body, held).call()
    assert seen.level is not None
    assert seen.lacks == "index webs/sizes fails for pods/default/p: KeyError: 'x'"


@pytest.mark.parametrize(("errors", "is_blocked"), [("block", True), ("ignore", False)])
def test_an_object_that_an_index_leaves_out_blocks_its_readers_unless_it_ignores_errors(
    errors: OnError, is_blocked: bool
) -> None:
    op = Operator("webs")

    @op.index(errors=errors)
    def shapes(pod: Pod) -> dict[str, int]:
        return {pod.metadata.name: 1}

    @op.view
    def seen(web: Web, shapes: Index[str, int]) -> Level[int]:
        return Level(1, len(shapes["a"]))

    held = Buckets({}, failing={("webs/shapes", ERRORS): left_out("p")})
    found = evaluation_of(Program([op]).views["webs/seen"], web("w", 1).body, held).call()
    assert (bool(found.blocked), found.level is None) == (is_blocked, is_blocked)


def test_what_an_index_fails_for_under_a_key_is_part_of_what_was_seen_there() -> None:
    as_it_was = evaluation_of(view("two_reads"), web("w", 1).body, Buckets({key("a"): [1]})).call()
    failing = Buckets({key("a"): [1]}, failing={key("a"): left_out("p")})
    blocked = evaluation_of(view("two_reads"), web("w", 1).body, failing).call()
    assert blocked.versions == as_it_was.versions
    assert blocked.reads_digest != as_it_was.reads_digest
    assert blocked.reads_digest == digest_of({place: failing.bucket(place) for place in blocked.versions})


def test_what_blocks_a_view_is_the_same_until_the_objects_left_out_change() -> None:
    def digest_with(*names: str) -> str:
        tables = Buckets({LEFT_OUT: left_out(*names)} if names else {})
        return digest_of({LEFT_OUT: tables.bucket(LEFT_OUT)})

    digests = [digest_with(*names) for names in ((), ("p",), ("p", "q"), ("q", "r"))]
    assert len(set(digests)) == 4
    assert digest_with("p", "q") == digest_with("p", "other")


contents = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), min_size=1, max_size=3))


@given(contents, contents)
def test_digests_are_equal_exactly_where_the_values_read_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    def read(values: dict[str, Any]) -> str:
        tables = Buckets({key(name): held for name, held in values.items()})
        return digest_of({key(name): tables.bucket(key(name)) for name in "abc"})

    assert (read(one) == read(other)) == (one == other)
