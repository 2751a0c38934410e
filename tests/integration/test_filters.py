"""Filters: deletions of what they took last are handled, and who comes back into them is written for again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog import AnnotatedResource, Operator, Struct
from levelog.testing import Simulation
from rigs.kopffiles import kopf_run
from rigs.simulated import run_with
from rigs.typed import ConfigMap


class ShopSpec(Struct):
    keep: bool = False


class Shop(AnnotatedResource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec = ShopSpec()


FILTERS: dict[str, dict[str, Any]] = {
    "labels": {"labels": {"keep": "no"}},
    "annotations": {"annotations": {"keep": "no"}},
    "when": {"when": lambda shop: not shop.spec.keep},
}


STORIES = {"no": True, "yes": False, "no-yes": False, "no-yes-no": True, "yes-no": True}
"""What `keep` is, one after the other, until the object is deleted; and whether its deletion is handled."""


def shop(name: str, keep: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"keep": keep}, "annotations": {"keep": keep}}
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": {"keep": keep == "yes"}}


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("finalizer", [True, False])
def test_a_handler_of_deletions_is_called_if_the_last_state_fits(filters: str, *, finalizer: bool) -> None:
    op, told = Operator("shops"), set[str]()

    @op.on.delete(finalizer=finalizer, **FILTERS[filters])
    def gone(shop: Shop) -> None:
        told.add(shop.metadata.name)

    with Simulation(op) as simulation:
        simulation.call_through(gone)
        for step in range(3):
            for story in STORIES:
                simulation.apply(shop(story, [*story.split("-"), *story.split("-")[-1:] * 2][step]))
            simulation.run()
        for story in STORIES:
            simulation.delete(Shop, story)
        simulation.run()
        assert told == {story for story, is_handled in STORIES.items() if is_handled}
        assert simulation.objects(Shop) == [], "no finalizer holds them"


KOPF = {
    "labels": 'labels={"keep": "no"}',
    "annotations": 'annotations={"keep": "no"}',
    "when": "when=lambda spec, **_: not spec['keep']",
    "when of the call": "when=lambda spec, reason, **_: not spec['keep']",
    "field": 'field="spec.keep", value=False',
}


@pytest.mark.parametrize("filters", KOPF)
@pytest.mark.parametrize("optional", [True, False])
def test_a_handler_of_deletions_in_a_kopf_file_is_called_if_the_last_state_fits(
    tmp_path: Path, filters: str, *, optional: bool
) -> None:
    source = f"""
    @kopf.on.delete("example.com", "v1", "shops", optional={optional}, {KOPF[filters]})
    def gone(name, **_):
        told.append(name)
    """
    with kopf_run(tmp_path, source) as kopf:
        for story in ("no-yes", "no-yes-no"):
            for keep in story.split("-"):
                marks = {"keep": keep}
                kopf.apply(metadata={"labels": marks, "annotations": marks}, keep=keep == "yes")
            assert kopf.delete() == (["a"] if STORIES[story] else [])
            assert kopf.simulation.objects(Shop) == [], "no finalizer holds it"


class NoteSpec(Struct):
    text: str
    on: bool = True


class Note(AnnotatedResource, group="example.com", version="v1", plural="notes"):
    spec: NoteSpec


COMING_BACK: dict[str, dict[str, Any]] = {
    "labels": {"labels": {"on": "yes"}},
    "annotations": {"annotations": {"on": "yes"}},
    "when": {"when": lambda note: note.spec.on},
}


def manifest(note: Note) -> dict[str, Any]:
    metadata = {"name": note.metadata.name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": note.spec.text}}


def operator(filters: dict[str, Any]) -> Operator:
    op = Operator("notes")

    @op.children(Note, of=ConfigMap, **filters)
    def published(note: Note) -> dict[str, Any]:
        return manifest(note)

    return op


def note(text: str, *, on: bool = True) -> dict[str, Any]:
    mark = {"on": "yes" if on else "no"}
    metadata = {"name": "hello", "namespace": "default", "labels": mark, "annotations": mark}
    return {"apiVersion": "example.com/v1", "kind": "Note", "metadata": metadata, "spec": {"text": text, "on": on}}


def standing(simulation: Simulation) -> tuple[list[str], str]:
    return written(simulation), simulation.level("published", "default", "hello").status


def written(simulation: Simulation) -> list[str]:
    return [each["data"]["text"] for each in simulation.objects(ConfigMap)]


@pytest.mark.parametrize("filters", COMING_BACK)
def test_invariant_21_a_parent_that_comes_back_into_the_filters_is_written_for_again(filters: str) -> None:
    with Simulation(operator(COMING_BACK[filters])) as simulation:
        for text in ("v1", "v2", "v1", "v1"):
            run_with(simulation, note(text))
            assert standing(simulation) == ([text], "in_sync")
            run_with(simulation, note(text, on=False))
        simulation.delete(ConfigMap, "hello")
        simulation.run()
        assert written(simulation) == []
        run_with(simulation, note("v1"))
        assert standing(simulation) == (["v1"], "in_sync")


def test_invariant_21_a_write_that_was_never_sent_is_sent_once_its_parent_is_back() -> None:
    with Simulation(operator(COMING_BACK["labels"])) as simulation:
        simulation.refuse(503, target="configmaps/default/hello", times=1)
        run_with(simulation, note("v1"))
        run_with(simulation, note("v1", on=False))
        run_with(simulation, note("v1"))
        simulation.advance(timedelta(minutes=5))
        assert standing(simulation) == (["v1"], "in_sync")
