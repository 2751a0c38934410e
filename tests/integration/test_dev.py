"""`levelog dev`: an operator, its cluster and its levels, while files change."""

import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from levelog_kube.client import KubeClient, connect
from levelog_kube.requestfailures import ApiError
from rigs.levelog import Levelog, Running
from rigs.preloaded import PROGRAM
from rigs.tty import on_terminal
from rigs.waiting import until

SHOPS = "/apis/example.com/v1/namespaces/default/shops"
MERGE = "application/merge-patch+json"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.example.com"


@pytest_asyncio.fixture
async def levelog(tmp_path: Path) -> Levelog:
    """In the folder that `levelog init` makes."""
    assert (await Levelog(tmp_path).ends("init", "shop")).status == 0
    return Levelog(tmp_path / "shop")


async def begun(running: Running, levelog: Levelog) -> KubeClient:
    """A client of the cluster, once the first object is in sync."""
    await running.says("levelog run: application shops")
    await running.says("shops/texts", "in_sync", " 1")
    return await connect(levelog.folder / ".levelog/dev/kubeconfig", None)


async def read(client: KubeClient, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((await client.request("GET", path)).body)
    return answer


def newest_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[-1])


def has(client: KubeClient, path: str) -> Callable[[], Awaitable[bool]]:
    async def found() -> bool:
        try:
            await client.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    return found


async def test_it_defines_creates_runs_and_shows_and_a_change_of_the_class_changes_the_definition(
    levelog: Levelog,
) -> None:
    with levelog.start("dev", "shop.py", "--create", "first.yaml") as running:
        client = await begun(running, levelog)
        async with client:
            said = await running.says("in other terminals: export KUBECONFIG=")
            assert f"LEVELOG_DATA_DIR={levelog.folder}/.levelog/dev" in said
            assert (await read(client, f"{SHOPS}/first"))["status"]["conditions"][0]["status"] == "True"
            file = levelog.folder / "shop.py"
            code = file.read_text()
            rule = "from levelog import CEL\n\n\n@CEL('self.copies < 9')\nclass ShopSpec"
            ruled = code.replace("class ShopSpec", rule)
            file.write_text(ruled.replace("    copies:", "    colour: str = 'red'\n    copies:"))
            await running.says("changed: shop.py")
            await running.says("the new code takes over")
            many = b'{"spec": {"copies": 9}}'
            with pytest.raises(ApiError, match=r"failed rule: self\.copies < 9"):
                await client.request("PATCH", f"{SHOPS}/first", body=many, content_type=MERGE)

            async def is_defined() -> bool:
                schema = (await read(client, DEFINITION))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                return "colour" in schema["properties"]["spec"]["properties"]

            await until(is_defined, "the new field in the definition")
            # Classes that make no definition are broken code.
            other = (
                '\n\nclass Other(Resource, group="example.com", version="v1", plural="shops"):\n    """The same."""\n'
            )
            file.write_text(code + other)
            await running.says("levelog: ", " both say what shops.example.com is")
            await running.says("the code before it runs on")
            file.write_text(code)
            await running.says("this changes no level and no write")
            await running.says("the new code takes over")
            assert "SIG" not in running.log.read_text()
        assert await running.stops(signal.SIGINT) == 0
        assert running.log.read_text().count("SIGINT asks") == 1
        assert "SIGTERM" not in running.log.read_text()


async def test_what_loading_a_file_warns_of_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "teams.py").write_text(
        "from levelog.compat import kopf\n\n\n"
        "@kopf.on.startup()\ndef configure(settings, **_):\n    settings.persistence.finalizer = 'example.com/t'\n\n\n"
        "@kopf.on.event('v1', 'configmaps')\ndef seen(**_):\n    pass\n"
    )
    with Levelog(tmp_path).start("dev", "teams.py") as running:
        await running.says("levelog run: application teams")
        assert running.log.read_text().count("teams.py, line 6: the finalizer is levelog/teams here") == 1


async def test_started_again_it_is_the_same_cluster_and_creates_nothing_twice(levelog: Levelog) -> None:
    uids = []
    for _ in range(2):
        with levelog.start("dev", "shop.py", "--create", "first.yaml") as running:
            async with await begun(running, levelog) as client:
                uids.append((await read(client, f"{SHOPS}/first"))["metadata"]["uid"])
                await running.says("watching on" if len(uids) == 2 else "listed 1 object", "shops.example.com")
            assert "history is missing" not in running.log.read_text()
            second = await levelog.ends("dev", "shop.py")
            assert second.status == 2
            assert "is in use by another process" in second.stderr
            assert "another --folder" in second.stderr
            assert await running.stops() == 0
    assert uids[0] == uids[1]


async def test_objects_wait_for_their_definitions_in_whichever_order_and_a_wrong_document_holds_up_no_other(
    levelog: Levelog,
) -> None:
    (levelog.folder / "box.yaml").write_text(
        "apiVersion: example.com/v1\nkind: Box\nmetadata: {name: one, namespace: default}\n"
    )
    (levelog.folder / "boxes.yaml").write_text(
        """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boxes, kind: Box}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-validations: [{rule: isQuantity("2")}]}}
"""
    )
    about = "apiVersion: example.com/v1\nkind: Shop\nmetadata: {"
    documents = [
        "a: b: c\n",
        f"{about}name: one}}\nspec: {{text: 22:22, copies: 1}}\n",
        "words\n",
        f"{about}generateName: two-}}\nspec: {{text: hello, copies: 1}}\n",
        f"{about}name: three}}\nspec: {{text: hello, text: again}}\n",
        'kind: List\nitems:\n- {apiVersion: example.com/v1, kind: Shop, metadata: {name: four}, spec: {text: "4"}}\n',
    ]
    (levelog.folder / "many.yaml").write_text("---\n".join(documents))
    thing = "apiVersion: example.com/v9\nkind: Thing\nmetadata: {name: %s}\n"
    (levelog.folder / "a.yaml").write_text(thing % "one")
    (levelog.folder / "b.yaml").write_text("---\n".join(thing % name for name in ("two", "three")))
    files = ("box.yaml", "boxes.yaml", "many.yaml", "absent.yaml", "pyproject.toml", "a.yaml", "b.yaml")
    with levelog.start("dev", "shop.py", *(word for name in files for word in ("--create", name))) as running:
        await running.says("boxes.example.com: this cluster does not check 1 rule in CEL", 'isQuantity(\\"2')
        for line in (
            "created Box one",
            "created Shop one",
            "created Shop four",
            "many.yaml, line 1: mapping values are not allowed in this context; mend many.yaml",
            "many.yaml, line 8: something that is not an object; mend many.yaml",
            "apiVersion, kind and metadata.name, as generateName would make another one each time",
            "many.yaml, line 18: text stands twice in an object; mend many.yaml",
            "objects cannot be read from absent.yaml",
            "objects cannot be read from pyproject.toml",
            "does not serve Thing in version example.com/v9, of which there are 3 objects in a.yaml, b.yaml",
            "levelog run: application shops",
        ):
            await running.says(line)
        assert "does not serve Box" not in running.log.read_text()
        assert running.log.read_text().count('"level":"error"') == 8  # of pyproject.toml one for each of its tables


async def test_what_somebody_else_has_set_or_deleted_stays_so_until_the_file_is_saved(levelog: Levelog) -> None:
    async def has_copies(client: KubeClient, number: int) -> None:
        async def found() -> bool:
            copies: int = (await read(client, f"{SHOPS}/first"))["spec"]["copies"]
            return copies == number

        await until(found, f"{number} copies")

    def count(text: str) -> int:
        return running.log.read_text().count(text)

    def since_saved() -> str:
        return running.log.read_text().rpartition("changed: first.yaml")[2] if count("changed: first.yaml") else ""

    with levelog.start("dev", "shop.py", "--create", "first.yaml") as running:
        client = await begun(running, levelog)
        async with client:
            body = json.dumps({"spec": {"copies": 3}}).encode()
            path, kind = f"{SHOPS}/first", "application/merge-patch+json"
            await client.request("PATCH", path, query={"fieldManager": "kubectl"}, body=body, content_type=kind)
            file, objects = levelog.folder / "shop.py", levelog.folder / "first.yaml"
            file.write_text(file.read_text() + "# a comment\n")
            await until(lambda: count("the new code takes over") == 1, "the new code")
            objects.write_text(objects.read_text() + "# saved\n")
            await until(lambda: "changed Shop first" in since_saved(), "a change by the save")
            await has_copies(client, 2)
            await client.request("DELETE", path)
            file.write_text(file.read_text() + "# another comment\n")
            await until(lambda: count("the new code takes over") == 2, "the newer code")
            assert not await has(client, path)()
            objects.write_text(objects.read_text() + "# saved again\n")
            await until(lambda: "created Shop first" in since_saved(), "a creation by the save")
        assert await running.stops() == 0


async def test_it_ends_if_what_applies_saved_objects_has_ended(levelog: Levelog) -> None:
    with levelog.start("dev", "shop.py", "--create", "first.yaml") as running:
        async with await begun(running, levelog):
            os.kill(newest_child(running.pid), signal.SIGTERM)
            assert await running.ends() == 1
            assert "the process of the objects ended with status 0" in running.log.read_text()


async def test_a_write_that_fails_is_one_line_and_its_level_another(levelog: Levelog) -> None:
    file, objects = levelog.folder / "shop.py", levelog.folder / "first.yaml"
    file.write_text(file.read_text().replace('"data":', '"dta":'))
    objects.write_text(objects.read_text().replace("copies: 2", "copies: 1"))
    with levelog.start("dev", "shop.py", "--create", "first.yaml") as running:
        await running.says("shops/texts", ".dta: field not declared in schema", "tried once since")
        assert await running.stops() == 0
        log = running.log.read_text().splitlines()
        [attempt, level] = [line for line in log if "field not declared" in line]
        assert "apply configmaps/default/first-0: failed" in attempt
        assert level.startswith("shops/texts")


async def test_commands_that_look_back_find_it_where_nothing_else_is_or_runs(levelog: Levelog) -> None:
    running = levelog.start("dev", "shop.py", "--create", "first.yaml")
    own = levelog.folder / ".levelog/levelog.db"
    try:
        async with await begun(running, levelog):

            async def are_in_sync() -> bool:  # the object's conditions follow its copies
                return (await levelog.ends("levels")).stdout.count("in_sync") == 2

            await until(are_in_sync, "both levels in sync")
            said = await levelog.ends("levels")
            assert said.stderr == "of `levelog dev`, in .levelog/dev; --data-dir names others\n"
            own.touch()
            assert (await levelog.ends("levels")).stdout == said.stdout
            assert "levelog.db" in await levelog.refused("levels", "--data-dir", ".levelog", status=2)
        assert await running.stops() == 0
        assert (await levelog.ends("levels")).status == 2
        own.unlink()
        assert (await levelog.ends("why", "first")).stdout.count("shops/texts") > 1
        assert (await levelog.ends("plan", "shop.py")).status == 0
    finally:
        running.kill()


async def test_on_a_terminal_levels_are_below_the_log_and_what_is_wrong_stands_above_them_while_it_is_so(
    levelog: Levelog,
) -> None:
    objects = levelog.folder / "first.yaml"
    good = objects.read_text()
    objects.write_text(good.replace("copies: 2", "copies: 200"))
    env = {**levelog.env, "COLUMNS": "100", "LINES": "40"}
    async with on_terminal([str(PROGRAM), "dev", "shop.py", "--create", "first.yaml"], levelog.folder, env) as tty:
        await tty.says("! Shop first: spec.copies: ")
        await tty.says("mend first.yaml:")
        objects.write_text(good)
        await tty.says("apply configmaps/default/first-0: written")
        await tty.says("shop.py · 2 of 2 in sync")
        assert "! " not in await tty.says("VIEW")
        file = levelog.folder / "shop.py"
        code = file.read_text()
        file.write_text(code + "x = (\n")
        await tty.says("has a syntax error in line")
        await tty.says("the code before it runs on")
        file.write_text(code.replace("    copies:", "    colour: str\n    copies:"))
        await tty.says("may break stored objects: shops.example.com v1 spec.colour: is")
        await tty.says("! Shop first: spec.colour: Required value")
        objects.write_text(f"{good}  colour: red\n")
        await tty.says("2 of 2 in sync")
        while "! " in await tty.says("VIEW"):  # until there is a board without
            pass
        tty.types("\x03")
        await tty.says("\x1b[?25h")  # the cursor is there again
        assert await tty.ends() == 0
