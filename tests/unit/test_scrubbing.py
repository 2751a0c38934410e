import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.secrets.redaction import MOST_CHARACTERS, Redactor
from levelog_base.secrets.scrubbing import scrub
from levelog_base.wire.objects import GroupResource

VALUES = st.text(min_size=6, max_size=20).filter(lambda value: value not in "[redacted]")


@given(VALUES, st.sampled_from([str, repr, json.dumps, lambda v: quote(v, safe="", errors="replace")]))
def test_no_value_is_left_in_whatever_form_it_is_quoted(value: str, form: object) -> None:
    assert callable(form)
    quoted = form(value)
    text = scrub(f"Invalid value: {quoted}: is refused", [value])
    assert value not in text
    assert text.endswith(": is refused")


@given(st.binary(min_size=6, max_size=30).map(lambda b: b.hex()))
def test_base64_of_a_value_is_replaced_too(value: str) -> None:
    for encoded in (b64encode(value.encode()), urlsafe_b64encode(value.encode()).rstrip(b"=")):
        assert scrub(f'{{"password":"{encoded.decode()}"}}', [value]) == '{"password":"[redacted]"}'


def test_a_manifest_quoted_within_json_hides_its_values() -> None:
    value = 'pass"word\\<x>'
    manifest = json.dumps({"value": value})
    for text in (manifest, json.dumps(manifest), manifest.replace("<", "\\u003c").replace(">", "\\u003e")):
        assert "word" not in scrub(text, [value])


def test_short_values_are_replaced_as_words_of_their_own() -> None:
    assert (
        scrub('value "web" of web-2 in websites: web', ["web"]) == 'value "[redacted]" of web-2 in websites: [redacted]'
    )
    assert scrub("1 of 12", ["1", "12", ""]) == "1 of 12"


@pytest.mark.parametrize("kept", range(6, 12))
def test_the_beginning_of_a_value_at_a_cut_is_replaced(kept: int) -> None:
    assert scrub(f"denied: {'hunter2-canary'[:kept]}", ["hunter2-canary"]) == "denied: [redacted]"


def test_the_longer_of_two_values_goes_first() -> None:
    assert scrub("hunter2hunter2", ["hunter2", "hunter2hunter2"]) == "[redacted]"


def test_long_values_that_were_redacted_lately_are_hidden_in_any_text() -> None:
    redactor = Redactor(b"0123456789abcdef")
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "correct horse", "b": "short"}}
    redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    assert redactor.redact_text("ValueError: 'correct horse' short") == "ValueError: '[redacted]' short"
    assert redactor.redact_text("a short text", ["short"]) == "a [redacted] text"


def test_values_that_were_redacted_lately_are_forgotten_before_they_fill_the_memory() -> None:
    redactor = Redactor(b"0123456789abcdef")
    for number in range(40):
        secret = {"metadata": {"name": "s"}, "stringData": {"a": f"{number:03}" + "x" * (MOST_CHARACTERS // 20)}}
        redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    newest, oldest = (f"{number:03}" + "x" * (MOST_CHARACTERS // 20) for number in (39, 0))
    assert redactor.redact_text(newest) == "[redacted]"
    assert redactor.redact_text(oldest) == oldest
