"""`levelog init`: what it makes is tested, linted and typed as it says, and nothing of yours is written over."""

import json
import re
from pathlib import Path

import pytest
import yaml

from levelog_cli.scaffold.project import plural_of
from rigs.levelog import Levelog, python
from rigs.pages import ROOT


async def run(folder: Path, *arguments: str) -> None:
    ended = await python("-m", *arguments, folder=folder, seconds=280)
    assert ended.status == 0, ended


@pytest.mark.parametrize(
    ("kind", "name", "plural"),
    [("policy", "policy", "policies"), ("AppCache", "appcache", "appcaches")],
    ids=["a word", "a kind of two words"],
)
async def test_what_it_makes_passes_its_own_tests_and_the_linter(
    kind: str, name: str, plural: str, tmp_path: Path
) -> None:
    levelog = Levelog(tmp_path)
    made = await levelog.ends("init", kind, "--group", "rules.example.org")
    assert made.status == 0, made.stderr
    names = made.stdout.splitlines()
    assert len(names) == 9
    assert all((tmp_path / name).is_file() for name in names)
    folder = tmp_path / name
    definition = yaml.safe_load((folder / "crd.yaml").read_text())
    assert definition["metadata"]["name"] == f"{plural}.rules.example.org"
    assert (await levelog.ends("crd", f"{name}/{name}.py")).stdout == (folder / "crd.yaml").read_text()
    await run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    await run(folder, "ruff", "check", "--no-cache", ".")
    await run(folder, "ruff", "format", "--no-cache", "--check", ".")
    again = await levelog.ends("init", kind)
    assert (again.status, again.stdout) == (2, "")
    assert f"{name} is there already, and not empty" in again.stderr


async def test_its_readme_leads_from_dev_to_manifests_by_commands_that_there_are(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    assert (await levelog.ends("init", "shop")).status == 0
    text = (tmp_path / "shop/README.md").read_text()
    commands = [found.split() for found in re.findall(r"(?<![-/\w])levelog ([a-z-]+[^\n`]*)", text)]
    names = [command[0] for command in commands if command[-1] != "dev"]
    led = [name for name in dict.fromkeys(names) if name in ("dev", "run", "plan", "crd", "manifests")]
    assert led == ["dev", "run", "plan", "crd", "manifests"]
    levelog.folder = tmp_path / "shop"
    for command, *arguments in commands:
        if command in ("crd", "rbac", "manifests") and not {">", "--check"}.intersection(arguments):
            ended = await levelog.ends(command, *arguments)
            assert ended.status == 0, f"{command} {arguments}: {ended.stderr}"
    assert (tmp_path / "shop/deploy/README.md").is_file()


async def test_its_image_has_the_operator_and_runs_it(tmp_path: Path) -> None:
    assert (await Levelog(tmp_path).ends("init", "shop")).status == 0
    lines = [line.partition(" ") for line in (tmp_path / "shop/Dockerfile").read_text().splitlines()]
    told = {word: rest for word, _, rest in lines if word.isupper()}
    copied, folder = told["COPY"].split()
    assert (tmp_path / "shop" / copied).is_file()
    command, operator = json.loads(told["CMD"])
    assert (command, operator) == ("run", f"{folder}{copied}")  # of levelog's image, whose entry point is levelog
    assert told["FROM"] == "${BASE}"
    assert told["ARG"] == "BASE=levelog"
    assert 'ENTRYPOINT ["levelog"' in (ROOT / "Dockerfile").read_text()


@pytest.mark.long
async def test_what_it_makes_is_typed(tmp_path: Path) -> None:
    assert (await Levelog(tmp_path).ends("init", "shop")).status == 0
    await run(tmp_path / "shop", "mypy", ".", "--cache-dir", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["my-shop"], "'my-shop': a kind is named by letters and digits"),
        ([""], "'': a kind is named by letters and digits"),
        (["ConfigMap"], "the kind that this operator writes"),
        (["class"], "cannot name your module"),
        (["json"], "cannot name your module"),
        (["shop", "--group", "Example"], "a group is a domain in small letters"),
        (["shop", "--group", "example"], "a group is a domain in small letters"),
    ],
)
async def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    ended = await Levelog(tmp_path).ends("init", *arguments)
    assert (ended.status, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert not (tmp_path / "shop").exists()


async def test_a_folder_that_cannot_be_made_is_refused() -> None:
    ended = await Levelog(Path("/proc")).ends("init", "shop")
    assert (ended.status, ended.stdout) == (2, "")
    assert "cannot be written: " in ended.stderr


def test_plurals_are_those_of_kubernetes() -> None:
    assert [plural_of(each) for each in ("pod", "ingress", "policy", "gateway", "box")] == [
        "pods",
        "ingresses",
        "policies",
        "gateways",
        "boxes",
    ]
