"""What is measured side by side: one operator in Go, in Kopf and in levelog, each as programs that are started."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.servers import Servers
from rigs.nats import NatsServer
from rigs.preloaded import PROGRAM as LEVELOG
from rigs.processes import Process

KOPF: Final = Path(__file__).parents[1] / ".venv-kopf/bin/kopf"
"""In an environment of its own: `make bench` makes it, and without it Kopf is left out."""
OPERATORS: Final = Path(__file__).parent / "operators"
SOURCES: Final = Path(__file__).parent / "peers"
SERVERS: Final = frozenset({"kube-apiserver", "etcd", "postgres", "nats-server"})
_MEASURED: Final = frozenset({"levelog", "kopf", "gopeer"})
_UNCOMPILED: Final = "PYTHONDONTWRITEBYTECODE"
"""Not for programs that are measured: those that are installed are compiled."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MB: Final = os.sysconf("SC_PAGE_SIZE") / 2**20
_OPERATOR: Final = OPERATORS / "statuses.py"


class Peer(Struct, frozen=True):
    """One way to run the operator."""

    name: str
    commands: Sequence[Sequence[str | Path]]
    """Programs that run beside each other."""
    env: Mapping[str, str] = {}
    has_postgresql: bool = False
    has_nats: bool = False
    """A nats-server of its own; else what is needed of it is embedded."""


def all_peers() -> list[Peer]:
    """Go first, which the others are compared with; without Go or without Kopf's environment the rest."""
    return [*others(), *all_levelogs()]


def all_levelogs() -> list[Peer]:
    """levelog in one process and in several."""
    return [*levelog(_OPERATOR), split(_OPERATOR)]


def split(operator: Path, processors: int = 1) -> Peer:
    """An operator in a process for each part."""
    roles = ("ingest", "actuate", *["process"] * processors)
    return Peer("levelog, split", [[LEVELOG, role, operator] for role in roles], has_postgresql=True, has_nats=True)


def levelog(operator: Path, env: Mapping[str, str] | None = None) -> list[Peer]:
    """An operator, or a folder of operators, in one process."""
    run: list[list[str | Path]] = [[LEVELOG, "run", "--application", operator.stem, operator]]
    return [
        Peer("levelog, PostgreSQL", run, env or {}, has_postgresql=True),
        Peer("levelog, SQLite", run, env or {}),
    ]


def several(folder: Path, fields: Sequence[str]) -> list[Peer]:
    """An operator for each field of the status; levelog's are one application, whose files are put into `folder`."""
    for field in fields:
        shutil.copy(_OPERATOR, folder / f"{field}.py")
    alike = [
        Peer(peer.name, [["/usr/bin/env", f"BENCH_FIELD={field}", *peer.commands[0]] for field in fields], peer.env)
        for peer in others()
    ]
    return [*alike, *levelog(folder)]


def others() -> list[Peer]:
    """Those that are there of Go and Kopf."""
    kopf: list[str | Path] = [
        KOPF,
        "run",
        "--standalone",
        "--all-namespaces",
        "--quiet",
        OPERATORS / "kopf_statuses.py",
    ]
    go = _built()
    return [
        *([Peer("Go", [[go]])] if go is not None else []),
        *([Peer("Kopf", [kopf])] if KOPF.exists() else []),
    ]


@asynccontextmanager
async def running(servers: Servers, peer: Peer) -> AsyncGenerator["Programs"]:
    """The peer's programs, with a folder and servers of their own."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-bench-")))
        key = folder / "redaction.key"
        key.write_text("0" * 64)
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LEVELOG_", _UNCOMPILED))},
            "KUBECONFIG": str(servers.control_plane.kubeconfig),
            "BENCH_CALLS": str(folder / "calls"),
            "LEVELOG_REDACTION_KEY_FILE": str(key),
            **peer.env,
        }
        if peer.has_postgresql:
            env["LEVELOG_DATABASE_URL"] = servers.postgres.url_of(await servers.postgres.create_database())
            migrating = await asyncio.create_subprocess_exec(LEVELOG, "migrate", env=env, cwd=folder)
            if await migrating.wait():
                raise RuntimeError(f"levelog migrate ended with status {migrating.returncode}")
        if peer.has_nats:
            env["LEVELOG_NATS_URL"] = (await stack.enter_async_context(NatsServer())).url
        programs = Programs(peer, folder, env)
        stack.callback(programs.stop)
        programs.start()
        yield programs


class Programs:
    """The programs of a peer, which stop and start in the same folder."""

    def __init__(self, peer: Peer, folder: Path, env: Mapping[str, str]) -> None:
        self.calls = Path(env["BENCH_CALLS"])
        """What the programs note of calls."""
        self.database_url = env.get("LEVELOG_DATABASE_URL", "")
        """Empty: a database of their own."""
        self._peer, self._folder, self._env = peer, folder, env
        self.processes: list[Process] = []
        """In the order of the commands."""

    def start(self) -> None:
        """Start them all."""
        for number, command in enumerate(self._peer.commands):
            log = self._folder / f"{number}.log"
            self.processes.append(Process(command, log, env=self._env, folder=self._folder))

    def change(self) -> None:
        """Have levelog start with other code of its operator, which comes to the same."""
        changed = self._folder / "changed" / _OPERATOR.name
        changed.parent.mkdir()
        changed.write_text(_OPERATOR.read_text().replace("desired=web", "desired=0 + web"))
        commands = [[changed if each == _OPERATOR else each for each in command] for command in self._peer.commands]
        self._peer = replace(self._peer, commands=commands)

    def stop(self) -> None:
        """Stop them all, and wait until they have ended."""
        for process in self.processes:
            process.stop()
        self.processes.clear()

    def check(self) -> None:
        """Raise what one ended with, if one did."""
        for process in self.processes:
            process.check()


class Used(Struct, frozen=True):
    """What programs have used so far, by their name."""

    cpu_seconds: dict[str, float]
    memory_mb: dict[str, float]

    @property
    def operator_seconds(self) -> float:
        """Of what is measured, and not of servers."""
        return sum(seconds for name, seconds in self.cpu_seconds.items() if name in _MEASURED)

    @property
    def servers_seconds(self) -> float:
        """Of the servers, which do not end meanwhile."""
        return sum(seconds for name, seconds in self.cpu_seconds.items() if name in SERVERS)

    @property
    def operator_mb(self) -> float:
        """Of what is measured."""
        return sum(mb for name, mb in self.memory_mb.items() if name in _MEASURED)


def used() -> Used:
    """CPU time and resident memory of all programs that this process has started, and those that they started."""
    found = Used(defaultdict(float), defaultdict(float))
    programs: dict[int, OneProgram] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            programs[int(folder.name)] = used_by(int(folder.name))
    for each in programs.values():
        ancestor = each.parent
        while ancestor in programs and ancestor != os.getpid():
            ancestor = programs[ancestor].parent
        if ancestor == os.getpid():
            found.cpu_seconds[each.name] += each.cpu_seconds
            found.memory_mb[each.name] += each.memory_mb
    return found


class OneProgram(Struct, frozen=True):
    """What one process has used so far, and which one has started it."""

    name: str
    parent: int
    cpu_seconds: float
    memory_mb: float


def used_by(pid: int) -> OneProgram:
    """What a process has used so far, from Linux's /proc."""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    pages, fields = int(Path(f"/proc/{pid}/statm").read_text().split()[1]), tail.split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return OneProgram(head.partition("(")[2], int(fields[1]), cpu_seconds, pages * _PAGE_MB)


def _built() -> Path | None:
    """The Go program, built from its modules where that was not done before; None without Go."""
    go = shutil.which("go")
    if go is None:
        return None
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir())))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = caches / "levelog" / "peers" / digest.hexdigest()[:16] / "gopeer"
    if not program.exists():
        print(f"building {program}: some minutes, once")
        program.parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
        command: list[str | Path] = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", program, "."]
        subprocess.run(command, cwd=SOURCES, env=env, check=True)
    return program
