"""Handlers of a Kopf file on levelog: called for the edges that Kopf calls them for, with its arguments."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from levelog import OperatorError
from rigs.kopffiles import Shop, kopf_run, load_kopf

CHANGES = """
@kopf.on.create("example.com", "v1", "shops")
def created(name, namespace, uid, spec, meta, body, labels, annotations, reason, old, new, diff, retry, **_):
    assert (name, namespace, uid) == (meta.name, meta.namespace, meta["uid"]) == (body.meta.name, "default", uid)
    told.append((reason, dict(spec), dict(labels), dict(annotations), old, new, [tuple(each) for each in diff], retry))

@kopf.on.update("example.com", "v1", "shops")
async def updated(reason, old, new, diff, **_):
    told.append((reason, old, new, [tuple(each) for each in diff]))

@kopf.on.delete("example.com", "v1", "shops")
def deleted(reason, body, **_):
    told.append((reason, dict(body.spec), body.meta.deletion_timestamp is not None))
"""


def test_handlers_are_called_for_changes_of_the_essence_with_arguments_by_name(tmp_path: Path) -> None:
    with kopf_run(tmp_path, CHANGES) as kopf:
        new = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 1}}
        told = kopf.apply(metadata={"labels": {"a": "b"}}, size=1)
        assert told == [("create", {"size": 1}, {"a": "b"}, {}, None, new, [("add", (), None, new)], 0)]
        after = {"metadata": {"labels": {"a": "c"}}, "spec": {"size": 1, "box": {"x": 2}}}
        assert kopf.apply(metadata={"labels": {"a": "c"}}, size=1, box={"x": 2}) == [
            (
                "update",
                new,
                after,
                [("change", ("metadata", "labels", "a"), "b", "c"), ("add", ("spec", "box"), None, {"x": 2})],
            )
        ]
        assert kopf.read()["metadata"]["finalizers"] == ["levelog/shops"]
        kopf.simulation.patch_status(Shop, "a", {"phase": "made"}, namespace="default")
        kopf.simulation.run()
        assert kopf.told() == []
        assert kopf.delete() == [("delete", {"size": 1, "box": {"x": 2}}, True)]
        assert kopf.simulation.objects(Shop) == []


def test_a_delete_handler_that_is_optional_needs_no_finalizer(tmp_path: Path) -> None:
    source = CHANGES.replace(
        '.delete("example.com", "v1", "shops")', '.delete("example.com", "v1", "shops", optional=True)'
    )
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1)
        assert kopf.read()["metadata"].get("finalizers") is None
        assert kopf.writes() == []
        assert kopf.delete() == [("delete", {"size": 1}, False)]


def test_a_delete_handler_that_is_tried_again_is_given_the_newest_body(tmp_path: Path) -> None:
    source = """
    @kopf.on.delete("example.com", "v1", "shops")
    def gone(annotations, **_):
        told.append(dict(annotations))
        if "keep" in annotations:
            raise kopf.TemporaryError("is kept", delay=3600)
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(metadata={"annotations": {"keep": "yes"}})
        assert kopf.delete() == [{"keep": "yes"}]
        kopf.simulation.patch(Shop, "a", {"metadata": {"annotations": None}})
        kopf.simulation.run()
        assert kopf.told() == []
        assert kopf.after(hours=1) == [{}]
        assert kopf.simulation.objects(Shop) == []


def test_a_field_handler_is_told_of_its_field(tmp_path: Path) -> None:
    source = """
    @kopf.on.field("example.com", "v1", "shops", field="spec.box")
    def boxed(reason, old, new, diff, **_):
        told.append((reason, old, new, [tuple(each) for each in diff]))

    @kopf.on.update("example.com", "v1", "shops", field=("spec", "size"), old=1, new=lambda value, spec, **_: value > 2)
    def grown(old, new, **_):
        told.append((old, new))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == []
        assert kopf.apply(size=1, box={"x": 1}) == [("update", None, {"x": 1}, [("add", (), None, {"x": 1})])]
        assert kopf.apply(size=1, box={"x": 2}) == [("update", {"x": 1}, {"x": 2}, [("change", ("x",), 1, 2)])]
        assert kopf.apply(size=2, box={"x": 2}) == []
        assert kopf.apply(size=1, box={"x": 2}) == []
        assert kopf.apply(size=3, box={"x": 2}) == [(1, 3)]


@pytest.mark.parametrize("field", ["metadata.labels.app/role", ("metadata", "labels", "app/role")])
def test_a_key_of_a_field_may_have_a_slash(tmp_path: Path, field: object) -> None:
    source = f"""
    @kopf.on.field("example.com", "v1", "shops", field={field!r})
    def labelled(old, new, **_):
        told.append((old, new))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(metadata={"labels": {"app/role": "web"}}) == [(None, "web")]
        assert kopf.apply(metadata={"labels": {"app/role": "api"}}) == [("web", "api")]


def test_filters_take_literals_presence_and_callbacks_with_arguments(tmp_path: Path) -> None:
    source = """
    def is_big(spec, **_):
        return spec["size"] > 1

    @kopf.on.create("example.com", "v1", "shops", labels={"a": "b", "c": kopf.PRESENT, "d": kopf.ABSENT})
    def labelled(name, **_):
        told.append(("labelled", name))

    def is_size(value, spec, **_):
        return value == str(spec["size"])

    @kopf.on.create("example.com", "v1", "shops", annotations={"a": is_size})
    def noted(name, **_):
        told.append(("noted", name))

    @kopf.on.create("example.com", "v1", "shops", when=kopf.all_([is_big, kopf.not_(lambda spec, **_: "box" in spec)]))
    def big(name, **_):
        told.append(("big", name))

    is_odd, is_huge = (lambda spec, **_: spec["size"] % 2), (lambda spec, **_: spec["size"] > 9)

    @kopf.on.create("example.com", "v1", "shops", when=kopf.none_([is_odd, is_huge, lambda spec, **_: "box" in spec]))
    def none_of_them(name, **_):
        told.append(("none", name))

    @kopf.on.update("example.com", "v1", "shops", when=kopf.any_([kopf.all_([lambda diff, **_: len(diff) > 1])]))
    def much(name, **_):
        told.append(("much", name))

    is_one, is_two = (lambda value, **_: value == 1), (lambda value, **_: value == 2)

    @kopf.on.create("example.com", "v1", "shops", field="spec.box", value=kopf.any_([is_one, is_two]))
    def boxed(name, **_):
        told.append(("boxed", name))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply("a", metadata={"labels": {"a": "b"}}, size=1) == []
        assert kopf.apply("b", metadata={"labels": {"a": "b", "c": ""}}, size=1) == [("labelled", "b")]
        assert kopf.apply("c", metadata={"labels": {"a": "b", "c": "", "d": ""}}, size=1) == []
        assert kopf.apply("d", metadata={"annotations": {"a": "1"}}, size=1) == [("noted", "d")]
        assert sorted(kopf.apply("e", size=2)) == [("big", "e"), ("none", "e")]
        assert kopf.apply("e", size=3) == []
        assert kopf.apply("e", size=4, box=3) == [("much", "e")]
        assert kopf.apply("f", size=1, box=2) == [("boxed", "f")]
        assert kopf.apply("g", size=1, box=3) == []
        assert kopf.apply("h", size=10) == [("big", "h")]


def test_patch_and_returned_values_are_written_with_the_call_and_then_left_alone(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def one(patch, **_):
        patch.status["phase"] = "made"
        patch.metadata.labels["made"] = "yes"
        return {"n": 1}

    @kopf.on.create("example.com", "v1", "shops")
    async def two(patch, status, **_):
        patch.fns.append(extend)
        patch.spec["old"] = None
        return 2

    def extend(body):
        told.append(list(body["spec"]["list"]))
        body["spec"]["list"].append(3)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(list=[1], old=1) == [[1]]  # once, with the object of the call
        found = kopf.read()
        assert found["status"] == {"phase": "made", "one": {"n": 1}, "two": 2}
        assert found["metadata"]["labels"] == {"made": "yes"}
        assert found["spec"] == {"list": [1, 3]}
        assert len(kopf.writes()) == 4  # the object and its status, for each of the two
        kopf.simulation.patch_status(Shop, "a", {"phase": "other"}, namespace="default")
        kopf.apply(list=[])
        assert kopf.read()["status"]["phase"] == "other"
        assert len(kopf.writes()) == 4


def test_a_patch_that_is_refused_is_tried_again_and_then_dropped(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def one(spec, **_):
        told.append(spec["size"])
        return spec["size"]
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.simulation.refuse(403, target="shops.example.com/default/a", times=1)
        assert kopf.apply(size=1) == [1]
        assert "status" not in kopf.read()
        assert kopf.apply(size=2) == []
        level = kopf.simulation.level("one", "default", "a")
        assert (level.status, kopf.simulation.calls["one_handled"]) == ("settling", 1)
        assert kopf.after(minutes=1) == [2]
        assert kopf.read()["status"] == {"one": 2}
        kopf.simulation.refuse(403, target="shops.example.com/default/a")
        assert kopf.apply(size=3) == [3]
        kopf.simulation.advance(timedelta(hours=2))
        assert kopf.read()["status"] == {"one": 2}
        assert kopf.apply(size=4) == [4]


def test_a_field_of_the_status_that_somebody_writes_after_the_call_is_not_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def made(spec, patch, **_):
        patch.status["phase"] = f"made {spec['size']}"
        patch.status["nested"] = {"size": spec["size"], "box": 1}
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1)
        assert kopf.read()["status"] == {"phase": "made 1", "nested": {"size": 1, "box": 1}}
        kopf.simulation.refuse(403, target="shops.example.com/default/a", times=1)
        kopf.apply(size=2)
        newer = {"phase": "paused", "nested": {"box": 2}}
        kopf.simulation.patch_status(Shop, "a", newer, namespace="default")
        with caplog.at_level(logging.WARNING):
            kopf.simulation.advance(timedelta(minutes=1))
        assert kopf.read()["status"] == {"phase": "paused", "nested": {"size": 2, "box": 2}}
        assert "/status/nested/box, /status/phase is left as somebody else has written it" in caplog.text
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"
        kopf.apply(size=3)
        assert kopf.read()["status"]["phase"] == "made 3"


def test_a_handler_that_waits_for_the_result_of_one_above_is_called_once_it_is_there(tmp_path: Path) -> None:
    source = """
    def waits(status, retry, name):
        if "one" not in status:
            raise kopf.TemporaryError("not yet", delay=10)
        told.append((name, retry, status["one"]["n"]))

    @kopf.on.create("example.com", "v1", "shops")
    def above(status, retry, **_):
        waits(status, retry, "above")

    @kopf.on.create("example.com", "v1", "shops")
    def one(**_):
        return {"n": 1}

    @kopf.on.create("example.com", "v1", "shops")
    def below(status, retry, **_):
        waits(status, retry, "below")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [("below", 1, 1)]
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=1) == [("above", 1, 1)]


def test_a_filter_that_fails_fails_the_level_until_the_object_changes(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", when=lambda spec, **_: spec["size"] > 1)
    def made(spec, **_):
        told.append(spec["size"])
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == []
        level = kopf.simulation.level("made", "default", "a")
        assert (level.status, "size" in level.reason) == ("failed", True)
        assert kopf.apply(size=2) == [2]


def test_errors_are_tried_again_as_their_kind_and_the_options_say(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", retries=3, backoff=10)
    def thrice(retry, **_):
        told.append(("thrice", retry))
        raise kopf.TemporaryError("later", delay=5) if retry == 1 else ValueError("wrong")

    @kopf.on.create("example.com", "v1", "shops", errors=kopf.ErrorsMode.IGNORED)
    def careless(retry, **_):
        told.append(("careless", retry))
        raise ValueError("wrong")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert sorted(kopf.apply()) == [("careless", 0), ("thrice", 0)]
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=2) == [("thrice", 1)]
        assert kopf.after(seconds=6) == [("thrice", 2)]
        status = {name: kopf.simulation.level(name, "default", "a").status for name in ("thrice", "careless")}
        assert status == {"thrice": "failed", "careless": "in_sync"}
        assert kopf.after(hours=1) == []


def test_a_timeout_is_that_of_all_calls_together(tmp_path: Path) -> None:
    source = """
    seen = set()

    @kopf.on.create("example.com", "v1", "shops", timeout=25)
    def slow(retry, started, **_):
        seen.add(started)
        told.append((retry, len(seen)))
        raise kopf.TemporaryError("later", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [(0, 1)]
        assert kopf.after(hours=1) == [(1, 1), (2, 1)]
        level = kopf.simulation.level("slow", "default", "a")
        assert (level.status, "given up 0:00:25 after" in level.reason) == ("failed", True)


def test_memo_and_param_reach_the_handlers(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", param=7)
    def one(memo, param, **_):
        memo.seen = param

    @kopf.on.update("example.com", "v1", "shops")
    def two(memo, param, started, runtime, **_):
        told.append((memo.seen, param, memo["seen"], runtime.total_seconds() >= 0 and started is not None))
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1)
        assert kopf.apply(size=2) == [(7, None, 7, True)]


def test_handlers_are_given_the_resource_that_they_are_for(tmp_path: Path) -> None:
    source = """
    def is_mine(resource, **_):
        return resource.plural == "shops"

    @kopf.on.create("example.com", "v1", "shops", when=is_mine)
    def made(resource: kopf.Resource, **_):
        told.append((resource.name, resource.api_version, resource.kind, resource.singular, resource.namespaced))
        assert not (resource.shortcuts or resource.categories or resource.verbs)

    class Handlers:
        @staticmethod
        @kopf.on.create("namespaces", labels={"a": "b"})
        def grown(resource, namespace, body, **_):
            told.append((resource.name, resource.api_version, resource.namespaced, namespace, body.metadata.namespace))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [("shops.example.com", "example.com/v1", "Shop", "shop", None)]
        kopf.simulation.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"a": "b"}}}
        )
        kopf.simulation.run()
        assert kopf.told() == [("namespaces", "v1", False, None, None)]


def test_one_function_may_handle_several_changes_and_resources(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops", field="spec.size", id="grown")
    @kopf.on.create("apps", "v1", "deployments")
    @kopf.on.create("pods", labels={"a": "b"})
    @kopf.on.create("example.com", "v1", "shops", id="again")
    @kopf.on.update("example.com", "v1", "shops", id="again")
    def any_of_them(reason, body, **_):
        told.append((reason, body["kind"]))
        return reason
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [("create", "Shop")] * 2
        assert kopf.apply(size=2) == [("update", "Shop")] * 2
        assert kopf.read()["status"] == {"any_of_them": "create", "again": "update", "grown/spec.size": "update"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}},
        }
        kopf.simulation.apply({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        kopf.simulation.run()
        assert kopf.told() == [("create", "Pod")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('@kopf.on.create("shops")', "missing its group and its version"),
        ('@kopf.on.create("example.com", "shops")', "missing its version"),
        ('@kopf.on.create("example.com", "v1", "Shop")', "its plural, where 'Shop' stands"),
        ('@kopf.on.create(kopf.EVERYTHING, kopf.EVERYTHING)', "names no resource"),
        ('@kopf.on.create("example.com", 1)', "1 names no resource"),
        ('@kopf.index(kopf.EVERYTHING)', "handler is for EVERYTHING; an index is of one resource"),
        ('@kopf.on.create("example.com", "v1", "shops", retry=1)', "takes no option 'retry'"),
        ('@kopf.on.create("example.com", "v1", "shops", value=1)', "say which, field="),
        ('@kopf.on.create("example.com", "v1", "shops", errors="none")', "not one of kopf.ErrorsMode"),
        ('@kopf.on.create("example.com", "v1", "shops", backoff=0)', "not a number of seconds"),
        ('@kopf.on.create("example.com", "v1", "shops", timeout=float("inf"))', "timeout=inf is not a number"),
        ('@kopf.on.create("example.com", "v1", "shops", timeout=float("nan"))', "timeout=nan is not a number"),
        ('@kopf.on.create("example.com", "v1", "shops", retries=True)', "retries=True is not a number of calls"),
        ('@kopf.on.field("example.com", "v1", "shops")', "names no field"),
        ('@kopf.on.validate("example.com", "v1", "shops")', "no webhooks: write rules into"),
        ('@kopf.on.mutate("example.com", "v1", "shops")', "no webhooks: write defaults into"),
        ('@kopf.subhandler()', "inside of a change handler"),
        ('@kopf.on.create("example.com", "v1", "shops", registry=1)', "registry= is of no use here"),
        ('@kopf.daemon("example.com", "v1", "shops", initial_delay=lambda **_: 1)', "is a function"),
        ('@kopf.timer("example.com", "v1", "shops", interval=1, initial_delay=lambda **_: 1)', "is a function"),
        ('@kopf.daemon("example.com", "v1", "shops", interval=1)', "takes no option 'interval'"),
        ('@kopf.index("example.com", "v1", "shops", id="a b")', "ask for it by this name"),
        ('@kopf.timer("example.com", "v1", "shops")', "needs an interval"),
        ('@kopf.timer("example.com", "v1", "shops", idle=10)', "needs an interval"),
        ('@kopf.timer("example.com", "v1", "shops", interval=1, idle=0.5)', "each change is recorded"),
        ('@kopf.timer("example.com", "v1", "shops", interval="1")', "not a number of seconds"),
        ('@kopf.timer("example.com", "v1", "shops", interval=0.1)', "less than a second"),
        ('@kopf.on.startup(interval=1)', "takes no option 'interval'"),
        ('@kopf.on.event("example.com", "v1", "shops", retries=1)', "takes no option 'retries'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence_when_the_file_is_loaded(
    tmp_path: Path, source: str, said: str
) -> None:
    with pytest.raises(OperatorError) as refused:
        load_kopf(tmp_path, f"{source}\ndef handler(**_):\n    pass\n")
    assert said in str(refused.value)
    assert "shops.py, line 4" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('@kopf.on.event("example.com", "v1", "shops")\ndef seen(patch, **_): pass', "writes nothing"),
        (
            '@kopf.index("pods")\ndef pods(**_): pass\n'
            '@kopf.on.event("example.com", "v1", "shops")\ndef seen(pods, **_): pass',
            "looks up no index",
        ),
        (
            '@kopf.on.event("example.com", "v1", "shops")\ndef seen(pods, **_): pass\n'
            '@kopf.index("pods")\ndef pods(**_): pass',
            "looks up no index",
        ),
        (
            '@kopf.on.create("example.com", "v1", "shops", when=lambda pods, **_: pods)\ndef one(**_): pass\n'
            '@kopf.index("pods")\ndef pods(**_): pass',
            "its filter when= asks for the index pods",
        ),
        (
            '@kopf.index("pods")\ndef pods(**_): pass\n@kopf.index("services", id="pods")\ndef services(**_): pass',
            "which no other handler may have",
        ),
        (
            'def one(**_): pass\nfor each in range(5): kopf.on.create("example.com", "v1", "shops", param=each)(one)',
            "give one of them another id=",
        ),
    ],
)
def test_functions_and_handlers_that_cannot_be_together_are_refused(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        load_kopf(tmp_path, source)
