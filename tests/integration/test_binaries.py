import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.binaries import HOW_TO_GET_THEM, SOURCES, BinariesMissing, cache_folder, find_binaries, find_helm

pytestmark = pytest.mark.long  # of a rig, which seldom changes

TESTS = Path(__file__).parent.parent

# Stands for Go, which takes minutes: it counts its calls and writes programs that do nothing.
PRETENDED_GO = """#!/bin/sh
echo "$PWD $*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2" && chmod +x "$2"
"""

FAILING_GO = """#!/bin/sh
echo "first line" >&2
echo "go: go.mod requires go >= 1.26.0" >&2
exit 1
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH on which there is nothing but what the test puts there."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def make_program(path: Path, content: str = "#!/bin/sh\n") -> None:
    path.write_text(content)
    path.chmod(0o755)


def test_the_folder_that_the_environment_names_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(cache))
    make_program(cache / "etcd")
    with pytest.raises(BinariesMissing, match="does not hold both etcd and kube-apiserver"):
        find_binaries()
    make_program(cache / "kube-apiserver")
    found = find_binaries()
    assert (found.etcd, found.kube_apiserver) == (cache / "etcd", cache / "kube-apiserver")
    assert found.kube_controller_manager is None


def test_without_go_the_reason_says_how_to_get_them(cache: Path) -> None:
    with pytest.raises(BinariesMissing) as missing:
        find_binaries()
    assert str(missing.value) == HOW_TO_GET_THEM


def test_without_go_the_reason_says_what_helm_needs(cache: Path) -> None:
    assert not (cache / "bin" / "go").exists()
    with pytest.raises(BinariesMissing, match=r"^helm not found: install Go to build it$"):
        find_helm()


def test_a_failed_build_says_why_and_leaves_nothing(cache: Path) -> None:
    make_program(cache / "bin" / "go", FAILING_GO)
    with pytest.raises(BinariesMissing, match=r"etcd could not be built in .*: go: go.mod requires go >= 1.26.0$"):
        find_binaries()
    assert [path.suffix for path in cache_folder().parent.iterdir()] == [".lock"]


async def test_of_several_processes_one_builds_and_the_others_wait(cache: Path) -> None:
    make_program(cache / "bin" / "go", PRETENDED_GO)
    path = os.pathsep.join([str(cache / "bin"), "/usr/bin", "/bin"])
    calls = cache / "calls"
    environment = {**os.environ, "PATH": path, "CALLS": str(calls), "PYTHONPATH": str(TESTS)}
    builders = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rigs.binaries"), env=environment, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    outputs = [(await builder.communicate())[0].decode() for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0, 0, 0]
    assert sum("some minutes, once" in output for output in outputs) == 1
    built = calls.read_text().splitlines()
    assert [line.split()[0] for line in built] == [str(SOURCES / "etcd"), *[str(SOURCES / "kubernetes")] * 2]
    assert find_binaries().kube_controller_manager == cache_folder() / "kube-controller-manager"


@pytest.mark.parametrize(("is_ci", "outcome"), [(False, "skipped"), (True, "error")])
def test_a_missing_control_plane_skips_its_tests_except_in_ci(cache: Path, is_ci: bool, outcome: str) -> None:
    environment = {**os.environ, "CI": "true" if is_ci else ""}
    node = f"{TESTS}/integration/test_controlplane.py::test_the_server_tells_the_version_that_is_pinned"
    argv = [sys.executable, "-m", "pytest", "-rs", node]
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=TESTS.parent)
    assert f" 1 {outcome} in " in run.stdout
    assert HOW_TO_GET_THEM in run.stdout
