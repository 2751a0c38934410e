"""Decorators of handlers that are written in a wrong way, and what the error says."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import new_class
from typing import Any

import pytest

from levelog import Intent, Level, Operator, Resource, delete
from levelog.errors import OperatorError


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    pass


async def handle(web: Web) -> None:
    pass


def renamed(name: str) -> Callable[[Web], Level[int]]:
    def view(web: Web) -> Level[int]:
        return Level(desired=1, actual=1)

    view.__name__ = name
    return view


def of_kopf(spec, name, **_):  # type: ignore[no-untyped-def]
    pass


def bare(spec, name):  # type: ignore[no-untyped-def]
    pass


def unwritten(web: Web) -> list[Intent] | None:
    return [delete(web)]


KOPF = "; a file written for Kopf begins with `from levelog.compat import kopf`"
WEBS = ("example.com", "v1", "webs")


def page(request: str) -> None:
    pass


HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (lambda op: op.timer(Web), r"needs every=: timer\(every=timedelta\(hours=1\)\)"),
        (lambda op: op.timer(int, every=HOUR)(handle), "of=int, which is not a class derived from Resource"),
        (lambda op: op.timer(Shop, every=HOUR)(handle), "'web' is Web, and its decorator names Shop: make it Shop, or"),
        (lambda op: op.timer("webs", every=HOUR)(handle), r"takes options by name, not 'webs': timer\(every="),
        (lambda op: op.timer(Web, handle, every=HOUR), r"takes options by name, not Web, handle: timer\(every="),
        *(
            (register, rf"{name}: (int, which is not|takes a function or) a class derived from Resource")
            for wrong in (int, "webs")
            for name, register in (
                (r"on\.create", lambda op, wrong=wrong: op.on.create(wrong)),
                (r"on\.update", lambda op, wrong=wrong: op.on.update(wrong)),
                (r"on\.delete", lambda op, wrong=wrong: op.on.delete(wrong)),
                (r"on\.event", lambda op, wrong=wrong: op.on.event(wrong)),
                ("daemon", lambda op, wrong=wrong: op.daemon(wrong)),
            )
        ),
        *(
            (register, rf"^{name}: takes no 'example\.com', 'v1', 'webs': write @op\.{name}\(.*{KOPF}$")
            for name, register in (
                (r"on\.create", lambda op: op.on.create(*WEBS)),
                (r"on\.update", lambda op: op.on.update(*WEBS, retries=1)),
                (r"on\.delete", lambda op: op.on.delete(*WEBS)),
                (r"on\.event", lambda op: op.on.event(*WEBS)),
                (r"on\.field", lambda op: op.on.field(*WEBS, field="spec.image")),
                ("daemon", lambda op: op.daemon(*WEBS)),
            )
        ),
        *(
            (register, rf"{kind} of_kopf: .*'\*\*_'.*, its object first, as in def of_kopf\(web: Web\){KOPF}$")
            for kind, register in (
                ("handler", lambda op: op.on.create(of_kopf)),
                ("timer", lambda op: op.timer(every=HOUR)(of_kopf)),
            )
        ),
        (
            lambda op: op.on.update(field="spec.image"),
            r'on\.update: takes no option \'field\': field= is for @op\.on\.field\("spec\.image"\)$',
        ),
        (lambda op: op.on.create(bare), rf"'spec' is not annotated; it has to be a class derived from Resource{KOPF}$"),
        (
            lambda op: op.on.create(unwritten),
            "handler unwritten: is annotated to return intents: it has to yield them, by itself",
        ),
        (lambda op: op.on.create(Shop)(op.on.create(Web)(handle)), "handle: its decorators name two classes"),
        (lambda op: op.timer(handle), r"takes options by name, not handle: timer\(every=timedelta\(hours=1\)\)"),
        (lambda op: op.timer()(handle), r"needs every=: timer\(every=timedelta\(hours=1\)\)"),
        (lambda op: op.timer(every=HOUR, sharp="yes")(handle), "sharp='yes' is neither True nor False"),
        (lambda op: op.timer(every=HOUR, retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.on.resume(Web, since=None)(handle), r"needs since=: resume\(since=datetime\("),
        (lambda op: op.on.resume(handle), r"takes options by name, not handle: resume\(since="),
        (lambda op: op.on.resume()(handle), r"needs since=: resume\(since=datetime\("),
        (lambda op: op.on.resume(since=None)(handle), r"needs since=: resume\(since=datetime\("),
        (lambda op: op.on.create(retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.on.event(retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.daemon(retries=True)(handle), "retries=True is not a number of retries"),
        *(
            (
                register,
                rf"{re.escape(handler)}: max_concurrency={re.escape(repr(wrong))} is not a number of calls, 1 or more",
            )
            for wrong in (0, -1, True, False, 2.0, "2", [2])
            for handler, register in (
                ("handler handle", lambda op, wrong=wrong: op.on.create(max_concurrency=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.update(max_concurrency=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.delete(max_concurrency=wrong)(handle)),
                (
                    "handler handle",
                    lambda op, wrong=wrong: op.on.field("metadata.labels", max_concurrency=wrong)(handle),
                ),
                ("handler handle", lambda op, wrong=wrong: op.on.resume(since=NOON, max_concurrency=wrong)(handle)),
                ("timer handle", lambda op, wrong=wrong: op.timer(every=HOUR, max_concurrency=wrong)(handle)),
                ("event handler handle", lambda op, wrong=wrong: op.on.event(max_concurrency=wrong)(handle)),
                ("effect page", lambda op, wrong=wrong: op.effect(max_concurrency=wrong)(page)),
            )
        ),
        (lambda op: op.on.validate(handle), r"^op\.on\.validate: levelog serves no webhooks: write the rule into the"),
        (
            lambda op: op.on.mutate(Web),
            r"^op\.on\.mutate: levelog serves no webhooks: write defaults into the definition",
        ),
        (lambda op: op.on.timer(every=HOUR), r"^op\.on\.timer: write @op\.timer$"),
        (lambda op: op.on.created(Web), r"^op\.on\.created: did you mean @op\.on\.create\?$"),
        (
            lambda op: op.on.everything(Web),
            r"^op\.on\.everything: there is no such decorator; there are cleanup, create, delete, event, field, "
            r"resume, startup, update$",
        ),
        (lambda op: op.on.create(retry=3)(handle), r"^on\.create: takes no option 'retry'; did you mean retries=\?$"),
        (
            lambda op: op.on.event(sharp=True)(handle),
            r"takes no option 'sharp'; there are annotations, backoff, give_up_after, labels, max_concurrency, of, "
            r"retries, timeout, when$",
        ),
        (
            lambda op: (op.on.create(handle), op.view(renamed("handle"))),
            "operator 'webs' has the function 'handle' already; each handler needs a name of its own",
        ),
        (lambda op: op.daemon(max_concurrency=2)(handle), "daemon handle: takes no option 'max_concurrency'"),
        (lambda op: op.timer(every=HOUR, finalizer=True)(handle), "timer: takes no option 'finalizer'"),
        (
            lambda op: op.on.field("spec", retry=2)(handle),
            r"^on\.field: takes no option 'retry'; did you mean retries=\?$",
        ),
    ],
)
def test_what_is_written_wrongly_is_refused_by_what_to_write(register: Callable[[Any], object], says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        register(Operator("webs"))


def test_a_class_with_an_option_that_classes_have_not_is_refused_by_its_name() -> None:
    with pytest.raises(OperatorError, match=r"^class Box: takes no option 'sharp'$"):

        class Box(Resource, group="example.com", version="v1", plural="boxes", sharp=True):  # pyright: ignore
            pass


WRONG_LABELS = ["Webs", "webs.example.com", "my_webs", "-webs", "webs-", "1webs", "", 7, "w" * 64]
WRONG_GROUPS = ["Example.com", "example..com", ".com", "example.", "my_group", "-a.com", "a-.com", "a/b", "a\n", None]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("plural", each) for each in WRONG_LABELS),
        *(("version", each) for each in WRONG_LABELS),
        *(("group", each) for each in WRONG_GROUPS),
    ],
)
def test_a_class_under_a_name_that_no_api_can_serve_is_refused(option: str, value: Any) -> None:
    options = {"group": "example.com", "version": "v1", "plural": "webs"} | {option: value}
    says = rf"^class Web: {option}={re.escape(repr(value))} is not as the API names"
    with pytest.raises(OperatorError, match=says):
        new_class("Web", (Resource,), options)


@pytest.mark.parametrize("group", ["", "apps", "example.com", "a-1.b.c", "rbac.authorization.k8s.io"])
def test_a_group_that_an_api_can_serve_is_taken(group: str) -> None:
    made: type[Resource] = new_class("Web", (Resource,), {"group": group, "version": "v1alpha1", "plural": "webs"})
    assert made.resource_type.group == group
