import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import RecordError
from levelog_log.messages import header_lines
from levelog_log.transport.wire import parse_header_lines

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40)


@given(st.dictionaries(NAMES, VALUES))
def test_headers_are_read_as_they_were_written(headers: dict[str, str]) -> None:
    assert parse_header_lines(b"NATS/1.0\r\n" + header_lines(headers) + b"\r\n") == headers


@pytest.mark.parametrize("value", ["a\r\nce-type: other", "a\nb", "a\rb"])
def test_a_header_with_a_line_break_is_refused_by_name(value: str) -> None:
    with pytest.raises(RecordError, match="header ce-subject"):
        header_lines({"ce-id": "1", "ce-subject": value})


def test_a_status_line_is_no_header() -> None:
    assert parse_header_lines(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n\r\n") == {
        "Nats-Last-Consumer": "3"
    }
