"""The redaction under which a bundle is decided again in a test."""

from pathlib import Path

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.secrets.secretrules import Rules
from levelog_testing.recordings import redactor

KEY = b"0123456789abcdef0123456789abcdef"


def test_a_test_takes_key_and_rules_from_the_variables_that_the_processes_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redaction.key"
    file.write_bytes(KEY + b"\n")
    monkeypatch.setenv("LEVELOG_REDACTION_KEY_FILE", str(file))
    assert redactor().digest == Redactor(KEY).digest
    monkeypatch.setenv("LEVELOG_REDACT", "annotation:token,webs.example.com:spec.password !env:PATH")
    rules = Rules.parse(["annotation:token", "webs.example.com:spec.password", "!env:PATH"])
    assert redactor().digest == Redactor(KEY, rules).digest != Redactor(KEY).digest
    monkeypatch.setenv("LEVELOG_REDACTION", "off")
    assert redactor().digest == Redactor(is_off=True).digest


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELOG_REDACTION_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"redaction key file .*/none cannot be read: No such file"):
        redactor()
    (tmp_path / "none").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"^redaction key file .*/none: the redaction key has 5 bytes"):
        redactor()
