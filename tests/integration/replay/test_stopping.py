"""`levelog replay --break` and `--pdb`: the debugger inside of functions, with what they were given then."""

from pathlib import Path

import pytest_asyncio

from rigs.levelog import WEBS_FILE, Ended
from rigs.preloaded import PROGRAM
from rigs.recorded import Recorded
from rigs.tty import on_terminal

SHOP = "webs.example.com/default/shop"
LOOP = "    for name in sorted(level.drift.missing):"
AT_FOUR = "    if web.spec.replicas == 4:\n        {}\n"


class Debugging:
    """Replays with commands for the debugger on stdin."""

    def __init__(self, recorded: Recorded, folder: Path) -> None:
        self._recorded = recorded
        self._folder = folder

    def file(self, name: str, before: str, after: str) -> Path:
        """The operator with something changed."""
        path = self._folder / name
        path.write_text(WEBS_FILE.read_text().replace(before, after))
        return path

    async def types(self, commands: str, *arguments: str | Path) -> Ended:
        env = {**self._recorded.env, "COLUMNS": "80"}
        typed = "".join(f"{command}\n" for command in commands.split("; "))
        ended = await self._recorded.levelog.ends("replay", *arguments, env=env, typed=typed)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended


@pytest_asyncio.fixture
async def debugging(recorded: Recorded, tmp_path: Path) -> Debugging:
    return Debugging(recorded, tmp_path)


def stops(ended: Ended) -> list[str]:
    """What was said first at each stop."""
    lines = ended.stdout.splitlines()
    assert all(len(line) <= 80 or line.startswith(("->", "(Pdb)", "> ")) for line in lines), ended.stdout
    return [line for line in lines if line.startswith(("view ", "reconcile function "))]


async def test_a_break_at_a_record_stops_in_the_decision_that_it_asked_for_and_nowhere_else(
    recorded: Recorded, debugging: Debugging
) -> None:
    ended = await debugging.types(
        "p web.spec.replicas; n; p sorted(wanted); c; p sorted(level.drift.missing); w; c",
        WEBS_FILE,
        "--break",
        str(recorded.scaled),
    )
    assert ended.status == 0, ended
    assert stops(ended) == [f"view webs/pods, for {SHOP}", f"reconcile function webs/converge, for {SHOP}"]
    assert f"because of record {recorded.scaled}\n" in ended.stdout
    assert (
        '  read      webs/images[["example.com","Web","default","uid-shop"]]'
        in ended.stdout.partition("reconcile function")[0]
    )
    assert "  drift     missing shop-2, shop-3\n" in ended.stdout
    assert "(Pdb) 4\n" in ended.stdout
    assert "(Pdb) ['shop-0', 'shop-1', 'shop-2', 'shop-3']\n" in ended.stdout
    assert "(Pdb) ['shop-2', 'shop-3']\n" in ended.stdout
    assert "levelog_processors" not in ended.stdout, "only the user's frames are shown"
    assert "webs/pods  5     0" in ended.stdout, "stopping changes nothing"


async def test_a_break_names_a_function_or_an_object_that_was_written(debugging: Debugging) -> None:
    by_view = await debugging.types("; ".join(["c"] * 20), WEBS_FILE, "--break", "pods")
    assert by_view.status == 0
    assert sum(line.startswith("view webs/pods") for line in stops(by_view)) == 5
    assert by_view.stdout.count("webs.py(44)pods()\n") == 5, "at the first line"
    by_function = await debugging.types("; ".join(["c"] * 20), WEBS_FILE, "--break", "webs/converge")
    assert stops(by_function)
    assert all(line.startswith("reconcile function webs/converge") for line in stops(by_function))
    by_target = await debugging.types("c; c", WEBS_FILE, "--break", "pods/default/shop-3")
    assert stops(by_target) == [f"view webs/pods, for {SHOP}", f"reconcile function webs/converge, for {SHOP}"]
    by_parent = await debugging.types("c; c", WEBS_FILE, "--break", "webs.example.com/default/other")
    assert {line.rpartition("/")[2] for line in stops(by_parent)} == {"other"}


async def test_steps_stay_in_the_users_code_where_a_read_has_to_be_fetched(debugging: Debugging) -> None:
    file = debugging.file("other.py", "images[web.as_owner]", "images[ANOTHER]")
    another = 'ANOTHER = levelog.Owner("example.com", "Web", "default", "another")'
    file.write_text(f"import levelog\n{another}\n{file.read_text()}")
    ended = await debugging.types("n; s; s; c; c", file, "--break", SHOP, "--to", "20")
    asked = ended.stdout.split("view webs/pods")[1]
    assert "--Return--" in asked
    assert "levelog/" not in asked
    assert "sqlalchemy" not in asked


async def test_pdb_opens_where_a_function_raises(debugging: Debugging) -> None:
    file = debugging.file("raising.py", LOOP, AT_FOUR.format("{}['x']") + LOOP)
    ended = await debugging.types("p web.spec.replicas; c", file, "--pdb")
    assert ended.status == 1
    assert stops(ended) == [f"reconcile function webs/converge, for {SHOP}"]
    assert "  raises    KeyError: 'x'\n" in ended.stdout
    assert "(Pdb) 4\n" in ended.stdout
    assert "settling -> failed" in ended.stdout


async def test_pdb_opens_in_both_versions_at_the_first_difference(recorded: Recorded, debugging: Debugging) -> None:
    greedy = debugging.file(
        "greedy.py", "range(web.spec.replicas)", "range(web.spec.replicas if web.spec.replicas < 4 else 2)"
    )
    ended = await debugging.types("p len(locals()); c; c; c; c", WEBS_FILE, "--against", greedy, "--pdb")
    assert ended.status == 1
    assert stops(ended) == [
        f"view webs/pods of webs.py, for {SHOP}",
        f"reconcile function webs/converge of webs.py, for {SHOP}",
        f"view webs/pods of greedy.py, for {SHOP}",
    ]
    assert ended.stdout.count("the first decision that differs") == 1
    assert ended.stdout.count(f"because of record {recorded.scaled}\n") == 4
    assert "webs/pods  4     1" in ended.stdout


async def test_breakpoints_in_the_users_code_stop(debugging: Debugging) -> None:
    file = debugging.file("breaking.py", LOOP, AT_FOUR.format("breakpoint()") + LOOP)
    ended = await debugging.types("p web.spec.replicas; n; c", file)
    assert ended.status == 0
    assert "(Pdb) 4\n" in ended.stdout
    assert stops(ended) == [f"reconcile function webs/converge, for {SHOP}"]
    index = debugging.file("index.py", "    if owner := pod", "    breakpoint()\n    if owner := pod")
    ended = await debugging.types("p pod.metadata.name; p open('/dev/null').name; c; c", index)
    assert ended.status == 0, "the debugger may do what an index function may not"
    assert "(Pdb) 'shop-0'\n" in ended.stdout
    assert "(Pdb) '/dev/null'\n" in ended.stdout


async def test_thinking_takes_no_time_of_a_function(debugging: Debugging) -> None:
    slow = debugging.file("slow.py", "@op.view\n", "@op.view(timeout=timedelta(seconds=0.2))\n")
    slow.write_text("from datetime import timedelta\n" + slow.read_text())
    ended = await debugging.types("import time; time.sleep(0.5); n; c; c", slow, "--break", SHOP, "--to", "20")
    assert ended.status == 0, ended


async def test_whoever_quits_is_told_that_not_all_was_done(debugging: Debugging) -> None:
    for commands in ("run; p 1", "import os, signal; os.kill(os.getpid(), signal.SIGTERM); c"):
        ended = await debugging.types(commands, WEBS_FILE, "--break", "pods")
        assert ended.status == 2
        assert ended.stderr == "levelog: the debugger was left: not all decisions were made again\n"
        assert "records folded" not in ended.stdout
        assert ("*** give the command again" in ended.stdout) == commands.startswith("run")


REFUSED = {
    ("--break", "podz"): "there are webs/converge, webs/pods",
    ("--break", "images"): "that is an index, and --break stops in views, reconcile functions and what is called: "
    "write breakpoint()",
    ("--break", "900"): "the log ends at sequence",
    ("--break", "9" * 5000): "a record is given by its sequence",
    ("--break", "pods/default/none"): "was on this object, or wrote it",
    ("--pdb", "--json"): "leave out --json",
}


async def test_what_cannot_be_stopped_at_is_refused_in_one_sentence(recorded: Recorded) -> None:
    for arguments, words in REFUSED.items():
        assert words in await recorded.levelog.refused("replay", WEBS_FILE, *arguments, status=2, env=recorded.env)


async def test_on_a_terminal_ctrl_c_clears_the_line_and_the_bar_leaves_the_prompt_alone(
    recorded: Recorded, debugging: Debugging, tmp_path: Path
) -> None:
    was_seen = tmp_path / "was-seen"
    waiting = f"    while not Path({str(was_seen)!r}).exists():\n        time.sleep(0.02)\n"
    slow = debugging.file("slow.py", LOOP, waiting + AT_FOUR.format("breakpoint()") + LOOP)
    slow.write_text("import time\nfrom pathlib import Path\n" + slow.read_text())
    env = {**recorded.levelog.env, **recorded.env, "COLUMNS": "80"}
    async with on_terminal([str(PROGRAM), "replay", str(slow)], recorded.levelog.folder, env) as tty:
        await tty.says(" records/s")
        was_seen.touch()
        await tty.says("(Pdb) ")
        tty.types("web.spec")
        await tty.says("web.spec")
        await tty.insists("\x03", "--KeyboardInterrupt--")
        await tty.says("(Pdb) ")
        tty.types("p web.spec.replicas\n")
        await tty.says("4\r\n")
        tty.types("c\n")
        assert "records/s" not in await tty.says("records folded")
        assert await tty.ends() == 0
    piped = await debugging.types("c; c", slow)
    assert (piped.status, piped.stderr) == (0, "")
