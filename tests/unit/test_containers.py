"""compose.yaml, Dockerfile and requirements, held to what they run: settings, command lines, inline scripts."""

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import distribution
from importlib.util import find_spec
from os.path import normpath
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from msgspec.structs import fields
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from levelog_base.secrets.redaction import Redactor
from levelog_cli.main import app
from levelog_cli.monitoring.listening import ListenAddress, WebPage, listening
from levelog_cli.servers.embedded import nats_program
from levelog_cli.settings import Settings, variable
from levelog_sandbox.__main__ import parser

ROOT = Path(__file__).parents[2]
OPERATOR = "examples/webs/webs.py"


def interpolated(text: str, **variables: str) -> str:
    """The text with variables as Compose reads them: `${NAME}`, `${NAME:-default}`, `$$`."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found["name"]) or found["default"] or ""

    return re.sub(r"\$\$|\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", value, text)


def services(**variables: str) -> dict[str, dict[str, Any]]:
    """The services of compose.yaml with the variables set."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(interpolated(TEXT, COMPOSE_PROJECT_NAME="shop", **variables))[
        "services"
    ]
    return found


TEXT = (ROOT / "compose.yaml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES = services()
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "levelog:shop"}
COMMANDS = {name: service for name, service in OURS.items() if "entrypoint" not in service}
OPERATING = ("ingest", "processor", "actuator")
SCRIPTS = {
    name: service["command"][0] for name, service in OURS.items() if service.get("entrypoint") == ["python", "-c"]
}
LEVELOG = typer.main.get_command(app)


def parsed(arguments: list[str]) -> typer.Context:
    """The context of a subcommand for the arguments of `levelog`. Raises what typer does for those it refuses."""
    name, *rest = arguments
    with LEVELOG.make_context("levelog", [name]) as context:
        _, command, _ = LEVELOG.resolve_command(context, [name])  # type: ignore[attr-defined]
        made: typer.Context = command.make_context(name, rest, parent=context)
        return made


def run_script(name: str, folder: Path) -> None:
    """Run the inline script of a service with a folder in place of the volume that it mounts."""
    _, target = SERVICES[name]["volumes"][0].split(":")
    assert target in SCRIPTS[name]
    subprocess.run([sys.executable, "-c", SCRIPTS[name].replace(target, str(folder))], check=True, timeout=60)


@pytest.mark.parametrize("line", re.findall(r"^#.* run --rm tools (\S+(?: \S+)*?)(?:  |$)", TEXT, re.MULTILINE))
def test_every_command_line_of_the_comments_is_accepted(line: str) -> None:
    parsed(line.split()).close()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_variable_is_one_that_the_command_reads(name: str) -> None:
    lines = [COMMANDS[name]["command"]]
    if name == "tools":
        lines += [["why", "shop"], ["doctor", OPERATOR], ["history", "shop"], ["retry", "shop"]]
    read: set[Any] = set()
    for line in lines:
        with parsed(line) as context:
            read |= {parameter.envvar for parameter in context.command.params}
    assert read <= {variable(field.name) for field in fields(Settings)} | {None}
    assert set(COMMANDS[name]["environment"]) <= read


def test_the_sandbox_accepts_its_command_line_and_listens_where_its_kubeconfig_says() -> None:
    sandbox = SERVICES["sandbox"]
    given = parser().parse_args(sandbox["command"])
    assert sandbox["entrypoint"] == ["python", "-m", "levelog_sandbox"]
    assert given.host == sandbox["hostname"]
    assert given.kubeconfig == Path(SERVICES["ingest"]["environment"]["KUBECONFIG"])
    assert sandbox["ports"] == [f"127.0.0.1:{given.port}:{given.port}"]


def test_nothing_is_published_but_on_the_loopback_address() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert {port.rpartition(":")[2] for port in published} == {"8001", "4222", "5432", "8765"}
    assert all(port.startswith("127.0.0.1:") for port in published)


PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def test_every_image_that_is_fetched_has_a_digest() -> None:
    [base] = re.findall(r"^ARG BASE=(.*)$", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    built = {"${BASE}"} | {name for _, name in stages}
    used = [service["image"] for name, service in SERVICES.items() if name not in OURS]
    fetched = {base, *used, *(image for image, _ in stages if image not in built)}
    assert [image for image in fetched if PINNED.fullmatch(image) is None] == []
    assert {service["build"]["args"]["BASE"] for service in OURS.values() if "build" in service} == {base}


def test_every_process_does_without_root_and_a_writable_filesystem() -> None:
    for service in OURS.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE) == ["65532"]


def mounted_files() -> Iterator[str]:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if isinstance(volume, dict):
                yield normpath(volume["source"])
            elif volume.startswith("."):
                yield volume.split(":")[0]


@pytest.mark.parametrize("operator", [OPERATOR, "./shop.py", "../shop/shop.py", "/home/me/shop/shop.py"])
def test_one_variable_names_the_operator_everywhere(operator: str) -> None:
    found = services(OPERATOR=operator)
    folder, file = normpath(f"{operator}/.."), normpath(f"/operators/{operator}")
    for name in OPERATING:
        mount, (*_, given) = found[name]["volumes"][0], found[name]["command"]
        assert normpath(given) == file
        assert (normpath(mount["source"]), normpath(mount["target"])) == (folder, normpath(f"{file}/.."))
    for name in ("sandbox", "k3s"):
        [mount] = [each for each in found[name]["volumes"] if isinstance(each, dict)]
        assert normpath(mount["source"]) == folder
        if name == "sandbox":
            assert parser().parse_args(found[name]["command"]).create == [Path(mount["target"])]


def test_an_override_joins_the_network_of_a_cluster_on_the_host() -> None:
    text = (ROOT / "deploy/compose.host.yaml").read_text()
    override = yaml.safe_load(interpolated(text))
    for name, service in override["services"].items():
        [mount] = service["volumes"]
        assert service["environment"]["KUBECONFIG"] == f"{mount.split(':')[1]}/kubeconfig"
        assert "KUBECONFIG" in SERVICES[name]["environment"]
        assert "default" in service["networks"]
    assert {name for name in COMMANDS if "KUBECONFIG" in SERVICES[name]["environment"]} == set(override["services"])
    assert override["networks"]["cluster"] == {"name": "kind", "external": True}


@pytest.mark.parametrize("file", sorted(set(mounted_files())))
def test_what_is_mounted_is_in_the_repository(file: str) -> None:
    assert (ROOT / file).exists()


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_health_check_asks_a_process_where_it_listens_and_shows_what_it_says(*, is_ready: bool) -> None:
    page = WebPage(b"[-]process failed: why\n", status=HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)
    with listening(ListenAddress("", 0), {"/readyz": lambda _: page}) as found:
        for name in OPERATING:
            *command, script = SERVICES[name]["healthcheck"]["test"]
            port = ListenAddress.parse(SERVICES[name]["environment"]["LEVELOG_LISTEN"]).port
            assert command == ["CMD", "python", "-IS", "-c"]
            assert str(port) in script
            asking = [sys.executable, *command[2:], script.replace(str(port), str(found.port))]
            ended = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=60)
            assert (ended.returncode, ended.stdout.strip()) == (not is_ready, "[-]process failed: why")


def test_every_process_that_stays_has_a_health_check() -> None:
    stay = {name for name, service in SERVICES.items() if service["restart"] == "unless-stopped"}
    assert {name for name in stay if "healthcheck" not in SERVICES[name]} == set()


@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE])
def test_the_health_check_of_the_pages_asks_for_one_that_reads_the_tables(status: HTTPStatus) -> None:
    page = WebPage(b"levels", status=status)
    *command, script = SERVICES["pages"]["healthcheck"]["test"]
    address = SERVICES["pages"]["command"][1].removeprefix("--address=")
    with listening(ListenAddress("", 0), {"/levels": lambda _: page}) as found:
        asking = [sys.executable, *command[2:], script.replace(address, f":{found.port}")]
        ended = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=60)
    assert f"http://127.0.0.1{address}/levels" in script
    assert (ended.returncode == 0) == (status is HTTPStatus.OK), ended


def test_the_key_is_made_once_and_can_redact(tmp_path: Path) -> None:
    key = tmp_path / Path(SERVICES["ingest"]["environment"]["LEVELOG_REDACTION_KEY_FILE"]).name
    run_script("keys", tmp_path)
    made = key.read_bytes()
    run_script("keys", tmp_path)
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (made, 0o400)
    assert [file.name for file in tmp_path.iterdir()] == [key.name]
    Redactor(made.strip())


def test_the_kubeconfig_of_k3s_is_made_to_name_its_service(tmp_path: Path) -> None:
    (tmp_path / "k3s.yaml").write_text("server: https://127.0.0.1:6443\n")
    run_script("k3s-access", tmp_path)
    name = Path(SERVICES["actuator"]["environment"]["KUBECONFIG"]).name
    assert (tmp_path / name).read_text() == "server: https://k3s:6443\n"
    assert "--tls-san=k3s" in SERVICES["k3s"]["command"]


@pytest.mark.parametrize("file", ["nats.conf", "nats-cluster.conf"])
def test_nats_is_told_to_sync_and_to_take_large_objects(file: str) -> None:
    settings = (ROOT / "deploy" / file).read_text()
    assert re.search(r"^ *sync_interval: always$", settings, re.MULTILINE)
    assert re.search(r"^max_payload: 8MB$", settings, re.MULTILINE)


def test_the_image_gets_all_that_the_wheels_are_made_of() -> None:
    needed = {*runpy.run_path(str(ROOT / "docs/rooms.py"))["packages"](), "pyproject.toml", "README.md", "LICENSE"}
    first, *allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] in ("*", "!")]
    assert first == "*"
    assert needed <= {line.removeprefix("!") for line in allowed}


def test_levelog_loads_without_what_the_image_leaves_out(tmp_path: Path) -> None:
    [(folder, names)] = re.findall(r"site-packages/(kubernetes_asyncio/\S+) && rm -r ([\w ]+)", DOCKERFILE)
    installed = find_spec("kubernetes_asyncio")
    assert installed is not None
    assert installed.origin is not None
    site_packages = Path(installed.origin).parent.parent
    left_out = {site_packages / folder / name for name in names.split()}
    assert all(each.is_dir() for each in left_out)
    shutil.copytree(
        site_packages / "kubernetes_asyncio",
        tmp_path / "kubernetes_asyncio",
        ignore=lambda at, found: [each for each in found if Path(at) / each in left_out],
    )
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from levelog_kube.official import load_kube_config
import levelog_actuator.actuator, levelog_cli.servers.clusters, levelog_cli.wiring.stack
import levelog_cli.wiring.working, levelog_ingest.ingest
print(load_kube_config.__code__.co_filename)
"""
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert loaded.stdout.startswith(str(tmp_path))


def test_what_the_image_leaves_out_can_be_kept() -> None:
    kept = re.search(r'--build-arg KEEP="([^"]*)"', DOCKERFILE)
    assert kept is not None
    assert re.findall(r'case " \$KEEP " in \*" (\S+) "\*\)', DOCKERFILE) == kept[1].split()
    assert f"`--build-arg KEEP={kept[1]}`" in (ROOT / "docs/deployment.md").read_text()
    [package] = re.findall(r"uninstall --quiet --yes (\S+)", DOCKERFILE)
    assert re.search(rf"^{package}==", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE)


def test_a_target_has_the_nats_server_that_a_single_process_starts_and_the_default_has_none() -> None:
    *_, single, last = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    assert single.startswith("processes AS single\n")
    [(source, target)] = re.findall(r"^COPY --from=dependencies (/nats/\S+) (\S+)$", single, re.MULTILINE)
    assert Path(target) / Path(source).name == Path("/opt/levelog/bin") / nats_program().name
    assert last.strip() == "processes"


_FOLDER = Path(__file__).parents[2] / "requirements"


def _locked(name: str) -> list[Requirement]:
    lines = (_FOLDER / name).read_text().splitlines()
    return [Requirement(line.removesuffix("\\").strip()) for line in lines if line[:1].isalnum()]


@pytest.mark.parametrize("name", ["dev.txt", "runtime.txt"])
def test_whatever_is_asked_for_with_extras_is_locked_with_them(name: str) -> None:
    """Else pip takes `NAME[extra]` for a requirement without a version once a newer one is out, and refuses all."""
    here = [each for each in _locked(name) if each.marker is None or each.marker.evaluate()]
    locked = {canonicalize_name(each.name): each for each in here}
    missing = set[str]()
    for each in locked.values():
        for line in distribution(each.name).requires or []:
            asked = Requirement(line)
            extras: set[str] = each.extras or {""}
            if asked.marker is not None and not any(asked.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            if not asked.extras <= locked[canonicalize_name(asked.name)].extras:
                missing.add(f"{asked.name}[{','.join(sorted(asked.extras))}] of {each.name}")
    assert not missing
