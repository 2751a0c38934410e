from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from levelog_kube.client import LineSplitter

BODY = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20).map(b"\n".join)


@given(body=BODY, cuts=st.lists(st.integers(0, 900), max_size=30))
def test_lines_are_the_same_however_the_body_is_cut(body: bytes, cuts: list[int]) -> None:
    borders = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    splitter = LineSplitter()
    lines = [line for start, end in pairwise(borders) for line in splitter.feed(body[start:end])]
    *complete, last = body.split(b"\n")
    assert lines == [line for line in complete if line]
    assert splitter.is_within_line == bool(last)


def test_a_line_of_eight_megabytes_in_small_pieces_comes_out_whole() -> None:
    splitter = LineSplitter()
    lines: list[bytes] = []
    for _ in range(8 * 1024):
        lines += splitter.feed(b"x" * 1024)
    lines += splitter.feed(b"\nnext")
    assert [len(line) for line in lines] == [8 * 1024 * 1024]
    assert splitter.is_within_line
