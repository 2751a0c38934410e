from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, List, NewType, Optional  # noqa: UP035 - users write these too

import pytest

from levelog import Resource, Struct
from levelog.handlers.signatures import is_accepted, pair_types, shown
from levelog_base.wire.objects import Uid

Name = NewType("Name", str)


class Spec(Struct):
    image: str


class LongSpec(Spec):
    replicas: int


class Pod(Resource, plural="pods"):
    pass


@pytest.mark.parametrize(
    ("returned", "pair"),
    [
        (Iterator[tuple[str, int]], (str, int)),
        (Iterable[tuple[str, Spec]], (str, Spec)),
        (Generator[tuple[str, int], None, None], (str, int)),
        (list[tuple[tuple[str, str], int]], (tuple[str, str], int)),
        (List[tuple[str, int]], (str, int)),  # noqa: UP006
        (Iterator[tuple[str, int]] | None, (str, int)),
        (dict[str, Spec], (str, Spec)),
        (Optional[Mapping[str, int]], (str, int)),  # noqa: UP045
        (dict, (Any, Any)),
        (Iterator, (Any, Any)),
        (Iterator[Any], (Any, Any)),
        (Iterator[tuple[Any, ...]], (Any, Any)),
        (Any, (Any, Any)),
    ],
)
def test_key_and_value_are_read_from_what_an_index_returns(returned: Any, pair: tuple[Any, Any]) -> None:
    assert pair_types("images", returned) == pair


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (str, str),
        (int, Any),
        (Any, int),
        (str, str | None),
        (int | str, str | int),
        (int, float),
        (Uid, str),
        (str, Name),
        (Annotated[str, "note"], str),
        (list[int], List[int]),  # noqa: UP006
        (list[int], Sequence[int]),
        (tuple[str, str], tuple[str, ...]),
        (dict[str, LongSpec], Mapping[str, Spec]),
        (dict, dict[str, int]),
        (Pod, Resource),
    ],
)
def test_a_value_goes_where_a_type_checker_lets_it(given: Any, wanted: Any) -> None:
    assert is_accepted(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (str, int),
        (bool, int),
        (float, int),
        (str | None, str),
        (Spec, LongSpec),
        (tuple[str, str], tuple[str, str, str]),
        (tuple[str, ...], tuple[str, str]),
        (tuple[str, int], tuple[str, ...]),
        (list[str], list[int]),
        (list[str], set[str]),
        (dict[str, int], dict[str, str]),
    ],
)
def test_a_value_of_another_type_does_not(given: Any, wanted: Any) -> None:
    assert not is_accepted(given, wanted)


def test_types_are_shown_as_they_are_written() -> None:
    assert shown(tuple[str, Spec | None]).startswith("tuple[str, ")
    assert shown(Iterator[tuple[str, int]]) == "Iterator[tuple[str, int]]"
    assert [shown(hint) for hint in (Spec, Name, None, Any)] == ["Spec", "Name", "None", "Any"]
