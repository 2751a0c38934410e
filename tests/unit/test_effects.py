"""Effects and Events as they are written down: what is refused when a file is loaded, and what is part of the code."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from levelog import Index, Intent, Level, Operator, OperatorError, Resource, Struct, call, event
from levelog_processors.decide.writetargets import aimed
from levelog_processors.program import Program
from levelog_store.owners.handlers import differences
from rigs.kinds import Web
from rigs.storedobjects import stored_object


class Page(Struct):
    team: str


class Other(Struct):
    squad: str


class Node(Resource, version="v1", plural="nodes", scope="Cluster"):
    pass


def paging(effect: Callable[..., Any], *, parent: Any = Web, **options: Any) -> Operator:
    """An operator with the effect `page` and a view that calls it."""
    op = Operator("webs", settings=Other("a"))
    op.effect(**options)(effect)

    def told(web: Any, page: Any) -> Level[int]:
        return Level(1, 0)

    told.__annotations__ |= {"web": parent, "page": Index}

    def tell(web: Any) -> Iterator[Intent]:
        yield call(page, Page("storage"))

    tell.__annotations__["web"] = parent
    op.view(told)
    op.reconcile(told)(tell)
    return op


def page(request: Page, idempotency_key: str) -> str | None:
    return None


def of(op: Operator, intent: Intent, namespace: str = "default") -> Any:
    view = Program([op]).views["webs/told"]
    resource = str(view.handler.resource.group_resource)
    parent = stored_object(f"{resource}/{namespace or '_'}/shop", uid="u-1")
    return aimed(view, parent, intent)


def test_nothing_is_watched_for_an_effect() -> None:
    program = Program([paging(page)])
    assert set(program.resources) == {"webs.example.com"}
    assert program.views["webs/told"].reads == {"webs.example.com"}


def test_a_call_names_the_effect_the_parent_and_itself() -> None:
    to = of(paging(page), call(page, Page("storage"), name="night"))
    assert (str(to.target), to.api_version, to.body) == (
        "page.effects/default/shop:webs:night",
        "effects/v1",
        b'{"team":"storage"}',
    )


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        (
            call(print, "a"),
            "call of print: it is no effect of the operator 'webs': decorate it with @op.effect; known are: page",
        ),
        (call(page, Other("a")), "call of page: it takes Page, not this Other: "),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (call(page, Page("x" * 70_000)), "call of page: a request of 70011 bytes; 65536 are allowed"),
    ],
    ids=["no effect", "another type", "too large"],
)
def test_a_call_that_cannot_be_made_is_refused_when_it_is_decided(intent: Intent, said: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(said)):
        of(paging(page), intent)


def test_changed_code_of_an_effect_decides_anew_and_computes_nothing_anew() -> None:
    def slower(request: Page, idempotency_key: str) -> str | None:
        return str(request)

    slower.__name__ = "page"
    before, after = Program([paging(page)]), Program([paging(slower)])
    found = differences(before.handlers, after.handlers)
    assert found.decided == {"webs/told"}
    assert (found.indexed, found.evaluated, found.emptied) == ((), (), frozenset())


def test_the_same_event_has_the_same_name_and_another_one_has_not() -> None:
    op = paging(page)
    first, again = (of(op, event("Missing", "no backup")).target for _ in range(2))
    assert first == again
    others = [event("Missing", "no backup", type="Warning"), event("Missing", "none"), event("Found", "no backup")]
    assert len({str(of(op, each).target) for each in [*others, event("Missing", "no backup", action="Look")]}) == 4


def test_an_event_of_an_object_without_a_namespace_is_in_default() -> None:
    to = of(paging(page, parent=Node), event("Missing"), namespace="")
    assert (to.target.namespace, to.target.name.startswith("shop.")) == ("default", True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: event(""), "event: reason='' has to have 1 to 128 characters"),
        (lambda: event("A", action="x" * 129), "has to have 1 to 128 characters"),
        (lambda: event("A", type="Error"), 'event: type is "Normal" or "Warning", not \'Error\''),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (lambda: call(page, Page("a"), name="a/b"), "call: name='a/b' has a / or more than 253 characters"),
    ],
    ids=["reason", "action", "type", "name"],
)
def test_what_the_api_would_refuse_is_refused_at_once(wrong: Callable[[], Intent], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        wrong()


def test_a_note_is_cut_to_what_the_api_takes() -> None:
    note = event("A", "ä" * 1000).body["note"]
    assert len(note.encode()) <= 1024
    assert note.endswith("ä…")
