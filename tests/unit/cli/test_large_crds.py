"""Definitions of the shape and size that clusters have: imported, printed again, and of use for their objects."""

from pathlib import Path

import msgspec
import pytest

from levelog_cli.crds.definitions import definitions_of
from levelog_cli.crds.importing import source_of
from levelog_cli.crds.losses import losses
from levelog_cli.crds.schemas import SERVERS
from levelog_cli.loading import load_classes
from rigs.largecrds import NAMES, definition, objects


@pytest.mark.parametrize("name", NAMES)
def test_a_large_definition_is_made_again_and_its_objects_are_decoded(name: str, tmp_path: Path) -> None:
    given = definition(name)
    file = tmp_path / "imported.py"
    file.write_text(source_of({name: given}))
    classes = load_classes([file])
    schema = given["spec"]["versions"][1]["schema"]["openAPIV3Schema"]
    stored = next(cls for cls in classes if cls.definition.storage)
    for value in objects(schema):
        msgspec.convert(value | {"metadata": {"name": "a"}}, stored)
    assert list(losses(given)) == []
    for field in SERVERS:
        del schema["properties"][field]
    assert definitions_of(classes) == [given]


def test_what_classes_cannot_say_is_listed() -> None:
    given = definition(NAMES[0])
    given["metadata"]["labels"] = {"app": "a"}
    given["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
    properties = given["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]
    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}
    given["spec"]["versions"][0]["retired"] = True
    assert list(losses(given)) == [
        "metadata.labels.app",
        "spec.versions.v1alpha1.retired",
        "spec.versions.v1.schema.openAPIV3Schema.properties.metadata",
        "spec.conversion.strategy",
        "spec.conversion.webhook",
    ]
