"""Marks of Kopf on objects, which levelog does not make: said of files that name them."""

import logging
from pathlib import Path

import pytest

from levelog_cli.loading import load_operators

SOURCE = """from levelog.compat import kopf

@kopf.on.startup()
def begin(settings, **_):
    settings.persistence.finalizer = "acme.io/mine"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="acme.io")

@kopf.on.create("example.com", "v1", "teams")
def made(meta, **_):  # of KopfFinalizerMarker this says nothing
    return {"handled": "kopf.zalando.org/last-handled-configuration" in meta.annotations}
"""


def told(file: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="levelog.compat.kopf"):
        load_operators([file])
    return [record.getMessage().partition(":")[0] for record in caplog.records]


def test_marks_of_kopf_that_a_file_names_are_told_when_it_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "teams.py"
    file.write_text(SOURCE)
    assert told(file, caplog) == ["teams.py, line 5", "teams.py, line 6"]
    assert "the finalizer is levelog/teams here" in caplog.messages[0]
    file.write_text(SOURCE.replace("settings.persistence", "settings.posting"))
    assert told(file, caplog) == ["teams.py, line 6"]  # the storage; the annotation is below
    file.write_text(
        SOURCE.partition("def made")[0].partition("@kopf.on.startup")[0] + "@kopf" + SOURCE.rpartition("@kopf")[2]
    )
    assert told(file, caplog) == ["teams.py, line 5"]
