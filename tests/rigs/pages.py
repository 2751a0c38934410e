"""Pages of the documentation as a list of code blocks, in order."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
"""Code in a page, in blocks and in lines."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.(?:py|yaml))`[^`\n]*:\s*\Z")


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    text: str
    line: int
    file: str
    """The name that the sentence before it gives, as in "Write `greeter.py`:"; empty if there is none."""


class Command(NamedTuple):
    """A line after `$` in a console block, and the lines that are shown below it."""

    text: str
    shown: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page."""
    text = page.read_text()
    found: list[Block] = []
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()]
        named = _FILE.search(before)
        found.append(Block(fence[1], fence[2], before.count("\n") + 1, named[1] if named else ""))
    return found


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub(_plain, page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(block: Block) -> list[Command]:
    """The commands of a console block, comments removed, lines that end in a backslash joined."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(re.sub(r"\s{2,}# .*$", "", line[2:]), ()))
        elif found:
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
    return found


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Compare what a page shows with what was printed; blanks count as one.

    … stands for anything in a line, and by itself for one line or more.
    """
    real = "".join(f"{' '.join(line.split())}\n" for line in printed.splitlines() if line.strip())
    wanted = [" ".join(line.split()) for line in shown if line.strip()]
    lines = ["(?:.*\n)+?" if one == "…" else ".*".join(map(re.escape, one.split("…"))) + "\n" for one in wanted]
    return re.fullmatch("".join(lines), real) is not None


def _plain(code: re.Match[str]) -> str:
    return "" if code[0].startswith("```") else code[0].strip("`")


def table(document: Path, heading: str) -> list[list[str]]:
    """Cells of the first table below a heading, without the rows that name and underline the columns."""
    _, _, below = document.read_text().partition(f"\n## {heading}\n")
    assert below, f"{document.name} has no heading {heading!r}"
    rows: list[list[str]] = []
    for line in below.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows:
            break
    return rows[2:]
