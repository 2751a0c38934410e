"""The code blocks of the documentation are run: Python in order, in one namespace for each page; commands and SQL as
they stand there, in a folder with the files that the page names. YAML without a name is only parsed. What else is not
run is named here, with the reason."""

import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from levelog_sandbox import Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.pages import ROOT, Block, Command, blocks, commands, matches
from rigs.terminal import Terminal
from rigs.waiting import until

PAGES: Final = sorted(
    [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "testing/README.md"]
)

NOT_RUN: Final = {
    ("README.md", "make demo"): "installs a virtual environment; tests/e2e/test_run_examples.py runs the demo",
    ("README.md", "pip install"): "installs from the package index; tests/integration/test_wheel.py builds the wheels",
    ("README.md", "levelog dev"): "runs until it is stopped; test_dev.py runs it",
    ("docs/deployment.md", "docker"): "needs an engine; tests/unit/test_containers.py holds the file",
    ("docs/deployment.md", "kubectl"): "tests/e2e/test_manifests.py gives them to a real API server",
    ("docs/development.md", "docker compose"): "needs an engine; tests/unit/test_containers.py holds the file",
    ("docs/monitoring.md", "sed"): "needs the Prometheus operator; tests/unit/test_alerts.py holds the addresses",
    ("docs/deployment.md", "helm"): "test_chart.py installs a chart on a real API server",
    ("docs/reliability.md", "PYTHONPATH=tests"): "takes half an hour; tests/faults/test_nemesis.py runs some of it",
    ("docs/ui.md", "levelog ui"): "serves until it is stopped; tests/integration/ui asks for its pages",
    ("docs/tutorial.md", "mkdir"): "the test has a folder of its own",
    ("docs/tutorial.md", "python -m venv"): "the tests have their environment",
    ("docs/tutorial.md", ". .venv"): "the tests have their environment",
    ("docs/tutorial.md", "pip install"): "installs from the package index",
}
"""Page and beginning of a command: why it is not run."""

STATUS: Final = "echo $?"

SHOWN: Final = {
    "README.md": "test_why_prints_what_the_readme_shows; of the demo's steps, tests/unit/test_docs.py",
    "docs/development.md": "a board on a terminal; test_dev.py holds it",
    "docs/custom-resources.md": "what import-crd cannot keep; tests/unit/cli/test_large_crds.py holds its form",
    "docs/handlers.md": "a handler that fails; test_told_calls.py holds its form",
    "docs/children.md": "a level that waits; test_kept_children.py does what it says",
    "docs/code-changes.md": "the doctor's note; e2e/test_other_versions.py holds it",
    "docs/monitoring.md": "at a port of its own; test_probes.py holds it",
    "docs/replay.md": "a call that differs; replay/test_calls_again.py holds its form",
    "docs/time.md": "a recorded night; replay/test_what_if.py and its neighbours hold it",
    "docs/wakes.md": "an audit log of that program; tests/unit/wakes/test_planted_patterns.py plants it",
    "docs/writes.md": "reasons of levels; test_unseen_writes.py and test_repeated_rounds.py hold them",
}
"""Pages with blocks of the language `text`, which nothing can run: why they are as they are."""

ELSEWHERE: Final = {"testing/README.md": "test_simulate_fixture.py runs its tests"}
"""Pages whose Python another test runs."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable() -> list[Path]:
    return [page for page in PAGES if any(block.language in ("python", "console", "sql") for block in blocks(page))]


@pytest.mark.parametrize("page", runnable(), ids=name_of)
async def test_each_block_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    async with Terminal(tmp_path) as terminal:
        for block in blocks(page):
            if block.file and block.language in ("python", "yaml"):
                write(tmp_path / block.file, block)
            elif block.language == "python" and name_of(page) not in ELSEWHERE:
                run_python(page, block, names, request)
            elif block.language == "sql":
                terminal.select(block.text)
            elif block.language == "console":
                for command, following in pairwise([*commands(block), None]):
                    if command is not None and command.text != STATUS and not reason(page, command):
                        await terminal.run(command, status=status_in(following))


async def are_settled(levelog: Levelog) -> bool:
    return levelog.rows("SELECT DISTINCT state, is_relayed, is_folded FROM intents") == [("settled", 1, 1)]


async def test_why_prints_what_the_readme_shows(tmp_path: Path) -> None:
    [shown, *_] = [block.text for block in blocks(ROOT / "README.md") if block.language == "text"]
    async with Sandbox(pods_run=True) as cluster:
        await define_webs(cluster)
        cluster.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        levelog = Levelog(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
        running = levelog.start("run", WEBS_FILE)
        try:
            await levelog.in_sync()
            await until(lambda: are_settled(levelog), "writes that are settled")
            cluster.user.delete("pods", "shop-1")
            await levelog.in_sync(rounds=2)
            ended = await levelog.ends("why", "pods/default/shop-1", env={"COLUMNS": "100"})
            assert await running.stops() == 0
        finally:
            running.kill()
    lines, printed = without_numbers(shown).splitlines(), without_numbers(ended.stdout)
    # "is being deleted" changes nothing that is read: folded by itself, it is no cause
    assert matches(tuple(lines), printed) or matches((*lines[:3], *lines[4:]), printed), ended


def without_numbers(text: str) -> str:
    """A text in which every number, time and digest is the same."""
    return re.sub(r"\b[0-9a-f]+(?:[-:][0-9a-f]+)*\b(?:, [0-9]+)*(?!\w)", "#", re.sub(r"shop-\d", "shop-N", text))


def status_in(following: Command | None) -> int:
    """The status that a page says a command ends with, in the command after it."""
    return int(following.shown[0]) if following is not None and following.text == STATUS else 0


def write(file: Path, block: Block) -> None:
    """Write the file that a page shows; one of the repository has to be what is shown."""
    if file.resolve().is_relative_to(ROOT):
        assert file.read_text() == block.text, file
    else:
        file.write_text(block.text)


def run_python(page: Path, block: Block, names: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """Run a block, then the tests that it defines, with the fixtures that these ask for."""
    before = set(names)
    code = compile("\n" * block.line + block.text, str(page), "exec")
    exec(code, names)
    for name in sorted(set(names) - before):
        if name.startswith("test_"):
            wanted = inspect.signature(names[name]).parameters
            names.pop(name)(**{fixture: request.getfixturevalue(fixture) for fixture in wanted})


def reason(page: Path, command: Command) -> str:
    return next(
        (why for (of, text), why in NOT_RUN.items() if of == name_of(page) and command.text.startswith(text)), ""
    )


def every_command() -> Iterator[tuple[Path, Command]]:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                yield from ((page, command) for command in commands(block))


def test_each_block_has_a_language_that_says_how_it_is_run() -> None:
    for page in PAGES:
        for block in blocks(page):
            where = f"{name_of(page)}:{block.line}"
            assert block.language in {"python", "console", "sql", "yaml", "text"}, where
            assert block.language != "text" or name_of(page) in SHOWN, f"{where}: say in SHOWN what holds it"
            if block.language == "yaml":
                assert list(yaml.safe_load_all(block.text)), where


def test_what_is_not_run_is_still_there() -> None:
    skipped = {
        (of, text)
        for page, command in every_command()
        for of, text in NOT_RUN
        if reason(page, command)
        if of == name_of(page) and command.text.startswith(text)
    }
    assert skipped == {(of, text) for of, text in NOT_RUN if (ROOT / of).exists()}
    assert {page for page in SHOWN if any(b.language == "text" for b in blocks(ROOT / page))} == set(SHOWN)
