"""The first commit with which a replay decides otherwise, tried in a git worktree of its own."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_cli.printing.forms import PlainForm, print_plain
from levelog_cli.printing.lines import print_line, print_lines
from levelog_cli.running import FAILED, MISUSED
from levelog_cli.settings import DECIDING, Settings, flag


class _Replayed(Struct, frozen=True):
    """The status and the output of a replay."""

    status: int
    stdout: str
    stderr: str


async def show_first_commit(
    settings: Settings, file: Path, revisions: str, *, bundle: Path, form: PlainForm | None
) -> bool:
    """Print the first commit after one up to another that decides otherwise than recorded; tells whether there is one.

    Raises ConfigurationError for revisions that are not there, and if the replay cannot be run with either end.
    """
    good, is_range, bad = revisions.partition("..")
    if not is_range or not good or not bad or bad.startswith("."):
        raise ConfigurationError(f"--code {revisions}: write GOOD..BAD, as in v1.2..HEAD")
    folder = file.parent
    top = Path(await _git(folder, "rev-parse", "--show-toplevel"))
    start = await _git(folder, "rev-parse", "--verify", f"{good}^{{commit}}")
    commits = (await _git(folder, "rev-list", "--reverse", "--first-parent", f"{good}..{bad}")).split()
    if not commits:
        raise ConfigurationError(f"--code {revisions}: there is no commit after {good} up to {bad}")
    arguments = ["--bundle", str(bundle), *_options(settings)]
    async with _worktree(top, start) as tree:
        replayed = tree / file.relative_to(top)
        if (await _tried(tree, start, replayed, arguments)).status:
            raise ConfigurationError(f"--code {revisions}: with {good} the replay decides otherwise already")
        tried = {commits[-1]: await _tried(tree, commits[-1], replayed, arguments)}
        if not tried[commits[-1]].status:
            if form:
                print_plain({"commit": None}, form)
            else:
                print_line(f"{bad} decides as recorded, so do the commits before it as far as they were tried")
            return False
        low, high = 0, len(commits) - 1  # the one at `high` is bad, all before `low` are good
        while low < high:
            middle = (low + high) // 2
            tried[commits[middle]] = await _tried(tree, commits[middle], replayed, arguments)
            if tried[commits[middle]].status:
                high = middle
            else:
                low = middle + 1
    found = commits[high]
    subject = await _git(top, "show", "--no-patch", "--format=%h %s (%an, %as)", found)
    changes = await _git(top, "show", "--format=", "--unified=1", found, "--", str(folder))
    if form:
        print_plain({"commit": found, "subject": subject, "replay": tried[found].stdout, "diff": changes}, form)
    else:
        print_line(f"first bad commit: {subject}")
        print_lines(["", *tried[found].stdout.splitlines(), "", *changes.splitlines()])
    return True


def _options(settings: Settings) -> Iterator[str]:
    """The settings that a replay decides by, as options."""
    for name in DECIDING:
        value = getattr(settings, name)
        for each in value if isinstance(value, list) else [value]:
            yield from (flag(name), str(each)) if each not in ("", None) else ()


async def _tried(tree: Path, commit: str, file: Path, arguments: list[str]) -> _Replayed:
    """A replay with the code of a commit. Raises ConfigurationError if it cannot be run."""
    await _git(tree, "checkout", "--quiet", "--detach", commit)
    start = "from levelog_cli.start import main; main()"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # else bytecode of one commit may pass for another's
    found = await _run(Path.cwd(), environment, sys.executable, "-c", start, "replay", str(file), *arguments)
    if found.status not in (0, FAILED) or (found.status == FAILED and not found.stdout):
        raise ConfigurationError(f"commit {commit[:10]} cannot be tried: {_last(found.stderr)}")
    return found


@asynccontextmanager
async def _worktree(top: Path, commit: str) -> AsyncGenerator[Path]:
    with tempfile.TemporaryDirectory(prefix="levelog-bisect-") as folder:
        tree = Path(folder) / "tree"
        await _git(top, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            await _git(top, "worktree", "remove", "--force", str(tree))


async def _git(folder: Path, *arguments: str) -> str:
    """The output of git. Raises ConfigurationError with its complaint if it fails."""
    try:
        found = await _run(folder, dict(os.environ), "git", *arguments)
    except FileNotFoundError as error:
        raise ConfigurationError(f"git {arguments[0]} in {folder}: there is no git, or no such folder") from error
    if found.status:
        raise ConfigurationError(f"git {arguments[0]} in {folder}: {_last(found.stderr)}")
    return found.stdout.strip()


async def _run(folder: Path, environment: dict[str, str], *command: str) -> _Replayed:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=pipe, stderr=pipe)
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _Replayed(MISUSED if process.returncode is None else process.returncode, out.decode(), err.decode())


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
