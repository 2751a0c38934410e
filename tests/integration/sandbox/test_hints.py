"""Where the sandbox does less than the API server, its refusal says so, and what to do instead."""

import sys
from collections.abc import Iterator

import aiohttp
import pytest

from levelog_sandbox import Sandbox
from levelog_sandbox.schemas.expressions import is_available
from rigs.clusterclient import ClusterClient
from rigs.customresources import DEFINITIONS, define, definition

GROUP = "hints.example.com"
ROCKS = f"/apis/{GROUP}/v1/namespaces/default/rocks"


async def test_a_body_of_a_type_that_only_the_api_server_reads() -> None:
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    path = "/api/v1/namespaces/default/configmaps"
    async with (
        Sandbox() as sandbox,
        aiohttp.ClientSession(sandbox.url) as session,
        session.post(path, data=b"k8s", headers=protobuf) as answer,
    ):
        refused = await answer.json()
    assert refused["code"] == 415
    assert "(the sandbox reads JSON and YAML, no protobuf: add --dry-run=client -o yaml | kubectl" in refused["message"]


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the libraries that read CEL were not installed."""
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    is_available.cache_clear()
    yield
    is_available.cache_clear()


async def defined_with(api: ClusterClient, *rules: str) -> None:
    size = {"type": "integer", "x-kubernetes-validations": [{"rule": rule} for rule in rules]}
    spec = {"type": "object", "properties": {"size": size}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    await define(api, definition(GROUP, "rocks", "Rock", schema=schema))
    label = {"op": "add", "path": "/metadata/labels", "value": {"is": "changed"}}
    assert (await api.change(f"{DEFINITIONS}/rocks.{GROUP}", label)).code == 200


def rock(size: int) -> dict[str, object]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Rock", "metadata": {"name": f"r{size}"}, "spec": {"size": size}}


async def test_a_rule_in_cel_that_cannot_be_read_is_named_once_and_the_others_hold(
    api: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    await defined_with(
        api, "isQuantity(string(self))", "self > 1", "self >", "self + 1", "cel.bind(a, 2, self < a * 9)"
    )
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    beginning = f"rocks.{GROUP}: this cluster does not check 1 rule in CEL, a real one checks or refuses it: "
    assert [line.removeprefix(beginning).partition(" (")[0] for line in said] == [
        "isQuantity(string(self))",
        "self >",
        "self + 1",
    ]
    assert said[0].endswith("(undeclared reference to 'isQuantity')")
    assert said[2].endswith("(it is no condition, but of type INT)")
    assert (await api.create(ROCKS, rock(1))).code == 422
    assert (await api.create(ROCKS, rock(2))).code == 201


@pytest.mark.usefixtures("without_libraries")
async def test_without_the_libraries_no_rule_in_cel_is_checked_and_that_is_said_once(
    api: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    await defined_with(api, "self > 1", "self > 2", "self > 3", "self > 4")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"rocks.{GROUP}: this cluster does not check 4 rules in CEL, a real one does "
        "(pip install cel-expr-python protobuf): self > 1, self > 2, self > 3, …"
    ]
    assert (await api.create(ROCKS, rock(1))).code == 201
