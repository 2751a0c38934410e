"""What a server answers: its errors, the lines of its streams, and which cluster it is."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import LevelogError
from levelog_kube.client import Answer, KubeClient, LineSplitter
from levelog_kube.discovery import cluster_uid
from levelog_kube.requestfailures import MOST_WAIT_SECONDS, ApiError


def test_an_error_names_the_request_and_what_the_server_said() -> None:
    status = {"kind": "Status", "reason": "AlreadyExists", "message": 'pods "a" already exists', "code": 409}
    error = ApiError.from_answer("POST", "/api/v1/namespaces/default/pods", 409, msgspec.json.encode(status))
    assert str(error) == 'POST /api/v1/namespaces/default/pods: 409 AlreadyExists: pods "a" already exists'
    assert (error.status, error.reason, error.is_transient) == (409, "AlreadyExists", False)


def test_an_answer_that_is_no_status_object_is_told_as_it_is() -> None:
    error = ApiError.from_answer("GET", "/api", 502, b"<html>Bad Gateway</html>")
    assert error.message == "<html>Bad Gateway</html>"
    assert error.is_transient


def test_causes_of_an_invalid_object_are_kept() -> None:
    cause = {"reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.replicas"}
    status = {"reason": "Invalid", "message": "no", "code": 422, "details": {"causes": [cause]}}
    error = ApiError.from_answer("POST", "/x", 422, msgspec.json.encode(status))
    assert [one.field for one in error.causes] == ["spec.replicas"]


def test_the_code_of_a_watch_error_is_that_of_its_status_object() -> None:
    assert ApiError.from_answer("WATCH", "/x", 0, b'{"code":410,"reason":"Expired"}').status == 410


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    for header in ("60", in_a_minute):
        error = ApiError.from_answer("GET", "/x", 429, b"{}", {"Retry-After": header})
        assert error.retry_after is not None
        assert timedelta(seconds=30) < error.retry_after <= timedelta(seconds=60)


def test_retry_after_of_the_status_object_counts_where_there_is_no_header() -> None:
    error = ApiError.from_answer("GET", "/x", 500, b'{"details":{"retryAfterSeconds":3}}')
    assert error.retry_after == timedelta(seconds=3)


def test_without_a_word_about_waiting_there_is_none() -> None:
    assert ApiError.from_answer("GET", "/x", 500, b"{}", {"Retry-After": "soon"}).retry_after is None


def test_a_server_that_asks_for_years_is_asked_again_within_the_hour() -> None:
    in_a_year = format_datetime(datetime.now(UTC) + timedelta(days=365), usegmt=True)
    for header in ("99999999999", in_a_year):
        error = ApiError.from_answer("GET", "/x", 429, b"{}", {"Retry-After": header})
        assert error.retry_after == timedelta(seconds=MOST_WAIT_SECONDS)


BODY = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20).map(b"\n".join)


@given(body=BODY, cuts=st.lists(st.integers(0, 900), max_size=30))
def test_lines_are_the_same_however_the_body_is_cut(body: bytes, cuts: list[int]) -> None:
    borders = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    splitter = LineSplitter()
    lines = [line for start, end in pairwise(borders) for line in splitter.feed(body[start:end])]
    *complete, last = body.split(b"\n")
    assert lines == [line for line in complete if line]
    assert splitter.is_within_line == bool(last)


@pytest.mark.parametrize("body", [b'{"metadata":{}}', b'{"metadata":{"uid":""}}', b"[]", b"<html>"])
async def test_a_server_that_does_not_say_which_cluster_it_is_is_none(body: bytes) -> None:
    class Proxy:
        async def request(self, method: str, path: str) -> Answer:
            return Answer(status=200, headers={}, body=body)

    with pytest.raises(LevelogError, match="cannot be read"):
        await cluster_uid(cast("KubeClient", Proxy()))
