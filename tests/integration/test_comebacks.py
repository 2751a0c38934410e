"""A parent that leaves a view's filters and comes back is written for again, whatever it asks for."""

from datetime import timedelta
from typing import Any

import pytest

from levelog import AnnotatedResource, Operator, Struct
from levelog.testing import Simulation
from rigs.typed import ConfigMap


class NoteSpec(Struct):
    text: str
    on: bool = True


class Note(AnnotatedResource, group="example.com", version="v1", plural="notes"):
    spec: NoteSpec


FILTERS: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("filters", FILTERS)
def test_invariant_21_a_parent_that_comes_back_into_the_filters_is_written_for_again(
    filters: str,
) -> None:
    with Simulation(operator(FILTERS[filters])) as simulation:
        for text in ("v1", "v2", "v1", "v1"):
            simulation.apply(note(text))
            simulation.run()
            assert standing(simulation) == ([text], "in_sync")
            simulation.apply(note(text, on=False))
            simulation.run()
        simulation.delete(ConfigMap, "hello")
        simulation.run()
        assert written(simulation) == []
        simulation.apply(note("v1"))
        simulation.run()
        assert standing(simulation) == (["v1"], "in_sync")


def test_invariant_21_a_write_that_was_never_sent_is_sent_once_its_parent_is_back() -> None:
    with Simulation(operator(FILTERS["labels"])) as simulation:
        simulation.refuse(503, target="configmaps/default/hello", times=1)
        simulation.apply(note("v1"))
        simulation.run()
        simulation.apply(note("v1", on=False))
        simulation.run()
        simulation.apply(note("v1"))
        simulation.run()
        simulation.advance(timedelta(minutes=5))
        assert standing(simulation) == (["v1"], "in_sync")
