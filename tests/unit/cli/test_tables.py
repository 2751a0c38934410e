from hypothesis import given
from hypothesis import strategies as st

from levelog_cli.printing.tables import UNLIMITED, folded, table_lines

COLUMNS = ("VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON")
ROWS = [
    ("webs/pods", "webs.example.com/default/shop", "in_sync", "1", "", ""),
    (
        "guardrails/missing_quotas",
        "namespaces/_/a-namespace-with-a-name-that-is-as-long-as-names-may-be-in-kubernetes",
        "failed",
        "12",
        "missing compute-resources, object-counts; changed pods",
        "apply resourcequotas/default/compute-resources: 403 Forbidden: the user may not create resourcequotas",
    ),
]


def test_a_pipe_gets_one_row_a_line() -> None:
    assert [line.split("  ")[0] for line in table_lines(COLUMNS, ROWS, UNLIMITED)] == ["VIEW", "webs/pods", ROWS[1][0]]


def test_in_eighty_columns_names_are_folded_and_reasons_go_below() -> None:
    assert table_lines(COLUMNS, ROWS, 80) == [
        "VIEW                  PARENT                STATUS   ROUND  DRIFT",
        "webs/pods             webs.example.com/     in_sync  1",
        "                      default/shop",
        "guardrails/           namespaces/_/a-       failed   12     missing",
        "missing_quotas        namespace-with-a-                     compute-resources,",
        "                      name-that-is-as-                      object-counts;",
        "                      long-as-names-may-                    changed pods",
        "                      be-in-kubernetes",
        "    apply resourcequotas/default/compute-resources: 403 Forbidden: the user may",
        "    not create resourcequotas",
    ]


def test_what_fits_is_not_folded() -> None:
    assert table_lines(COLUMNS, ROWS[:1], 80) == [
        "VIEW       PARENT                         STATUS   ROUND  DRIFT",
        "webs/pods  webs.example.com/default/shop  in_sync  1",
    ]


@given(st.text(st.sampled_from("ab ,/;-"), max_size=80), st.integers(1, 20))
def test_folding_leaves_nothing_out(text: str, width: int) -> None:
    lines = folded(text, width=width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(0 < len(line) <= width for line in lines)
