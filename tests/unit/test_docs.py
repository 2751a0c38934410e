"""What the documents say is compared with the code, so that neither can change alone."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup, TyperOption

import levelog
from levelog_cli.demo.steps import STORY
from levelog_cli.main import app
from rigs.pages import CODE, anchors, table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS: dict[str, Path] = runpy.run_path(str(DOCS / "rooms.py"))["packages"]()
NOT_OURS = {"node_modules", "dist", "build"}
INVARIANTS = range(1, 24)

LINK = re.compile(r"\]\(([^)\s]+)\)")
INVARIANT = re.compile(r"^(?:async )?def test_(invariant_\d+_\w*)", re.MULTILINE)
NUMBER = re.compile(r"(?:invariant|and)_(\d+)_")
"""Of an invariant in the name of a test: `invariant_15_no_edge_is_lost_and_16_none_is_invented_on_sqlite`."""


def documents(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not path.name.startswith(".") and path.name not in NOT_OURS:
                yield from documents(path)
        elif path.suffix == ".md":
            yield path


def block(document: Path, language: str, *, below: str = "") -> str:
    """The first code block of a language, in a document or below one of its headings."""
    text = document.read_text()
    if below:
        text = text.partition(f"\n## {below}\n")[2]
    found, *_ = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def options() -> dict[str, list[TyperOption]]:
    """Options of each command but `--help`."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        name: [p for p in command.params if isinstance(p, TyperOption) and "--help" not in p.opts]
        for name, command in group.commands.items()
    }


def long_name(option: TyperOption) -> str:
    return next(name for name in option.opts if name.startswith("--"))


def test_the_readme_shows_the_whole_example() -> None:
    assert block(ROOT / "README.md", "python") == (ROOT / "examples/webs/webs.py").read_text()


def test_the_readme_shows_two_steps_of_the_demo() -> None:
    shown = re.findall(r"^(\d+)\. (.*)$", block(ROOT / "README.md", "text", below="Try it"), re.MULTILINE)
    steps = [(str(number), step.title) for number, step in enumerate(STORY, 1)]
    assert len(shown) == 2
    assert set(shown) <= set(steps)


def test_the_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1_150


def test_each_page_is_listed_once() -> None:
    listed = re.findall(r"^- \[[^]]*\]\(([\w-]+\.md)\): ", (DOCS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")


def test_contributing_is_a_page_that_names_every_room_and_what_there_is() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert {f"{room}/README.md" for room in ROOMS} <= set(LINK.findall(page))
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", page)) <= set(targets)
    assert [path for path in re.findall(r"[\w.]+/[\w./]+\.py\b", page) if not (ROOT / path).exists()] == []
    assert len(page.splitlines()) <= 90


def test_there_are_documents_to_look_at() -> None:
    assert {ROOT / "README.md", DOCS / "architecture.md", ROOT / "sdk/README.md"} <= set(documents())


@pytest.mark.parametrize("document", list(documents()), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    broken: list[str] = []
    for link in LINK.findall(CODE.sub("", document.read_text())):
        path, _, anchor = link.partition("#")
        target = document if not path else document.parent / path
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_each_decision_is_listed_in_order() -> None:
    pages = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert len({page[:4] for page in pages}) == len(pages)
    assert re.findall(r"\]\((\d{4}-.*?\.md)\)", (DOCS / "decisions/README.md").read_text()) == pages


def test_each_decision_is_one_page_with_reason_and_consequence() -> None:
    for page in (DOCS / "decisions").glob("[0-9]*.md"):
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        assert all(part in text for part in ("**Decided.**", "**Why.**", "**What follows.**")), page.name
        assert len(text.splitlines()) <= 40, page.name


def test_each_file_that_a_decision_names_is_there_and_has_what_it_names() -> None:
    rooms = [
        ROOT / room
        for room in ("sdk", "log", "kube", "store", "ingest", "processors", "actuator", "replay", "tests", "deploy")
    ]
    files = [path for room in rooms for path in room.rglob("*.py")]
    for page in (DOCS / "decisions").glob("[0-9]*.md"):
        for named, inner in re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", page.read_text()):
            found = [path for path in files if path.as_posix().endswith(f"/{named}")]
            assert found, f"{page.name}: {named}"
            last = inner.rpartition(".")[2]
            assert any(last in path.read_text() for path in found), f"{page.name}: {named}::{inner}"


def test_each_invariant_of_the_architecture_is_held_by_tests_of_its_number() -> None:
    rows = table(DOCS / "architecture.md", "Invariants")
    assert [row[0] for row in rows] == [str(number) for number in INVARIANTS]
    names = (name for path in (ROOT / "tests").rglob("test_*.py") for name in INVARIANT.findall(path.read_text()))
    assert {int(number) for name in names for number in NUMBER.findall(name)} == set(INVARIANTS)


def test_no_document_cites_an_invariant_that_does_not_exist() -> None:
    for document in documents():
        cited = {int(number) for number in re.findall(r"\b[Ii]nvariants? (\d+)\b", document.read_text())}
        assert cited <= set(INVARIANTS), document


def test_each_room_has_a_readme_that_the_architecture_links_to() -> None:
    linked = set(LINK.findall((DOCS / "architecture.md").read_text()))
    for room in ROOMS:
        assert (ROOT / room / "README.md").exists(), room
        assert f"../{room}/README.md" in linked, room


def test_the_settings_are_those_of_the_command_line() -> None:
    described = [row[0].strip("`") for row in table(DOCS / "configuration.md", "Settings")]
    real = {long_name(option): option.envvar for taken in options().values() for option in taken if option.envvar}
    assert sorted(described) == sorted(real)
    prefixed = {flag: f"LEVELOG_{flag.strip('-').replace('-', '_').upper()}" for flag in real}
    assert real == prefixed | {"--kubeconfig": "KUBECONFIG"}


def test_the_commands_are_made_of_their_help() -> None:
    made: dict[str, Any] = runpy.run_path(str(DOCS / "commands.py"))
    assert (DOCS / "commands.md").read_text() == made["page"](), "run `make reference`"


def test_the_readme_of_the_command_line_and_the_project_name_every_command() -> None:
    for document in (ROOT / "README.md", ROOT / "cli/README.md"):
        text = document.read_text()
        assert [name for name in options() if f"`{name}" not in text and f"levelog {name}" not in text] == []


def test_the_reference_is_made_of_the_docstrings() -> None:
    made: dict[str, Any] = runpy.run_path(str(DOCS / "reference.py"))
    assert (DOCS / "reference.md").read_text() == made["page"](), "run `make reference`"


def test_the_public_names_are_few_and_sorted() -> None:
    names = levelog.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(names) <= 30
    assert all(hasattr(levelog, name) for name in names)
