"""`python -m bench.wakes.speed`: how fast `levelog wakes` reads a log of metadata, and what memory that takes.

Events come from a model of a busy cluster: kubelets, leader election, and operators that poll. Each pod lives for a
minute, so the number of objects grows with the log. The first part reads a file, with this code and with that of
`--before REVISION`. The second writes `--gigabytes` into a pipe, and looks at the reader's memory in between; with
`--labs` these are the logs of `bench/wakes/logs`, with bodies, again and again, each time in a namespace of its own.
"""

import argparse
import gzip
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import chain, count, islice
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

_ROOT: Final = Path(__file__).parents[2]
_LOGS: Final = Path(__file__).parent / "logs"
_DAY: Final = re.compile(rb'"20\d\d-\d\d-\d\dT')
_FIRST_MINUTE: Final = 1_800_000_000 // 60
_READ: Final = """
import atexit, resource, sys
from levelog_cli.main import app

def tell():
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        print(used.ru_utime + used.ru_stime, file=sys.stderr)

atexit.register(tell)
app(["wakes", *sys.argv[1:], "--json"])
"""


def events() -> Iterator[bytes]:
    """Lines without end, in the order of time; one minute of them is planned, and comes again and again."""
    planned = sorted(_minute(random.Random(1)), key=itemgetter(0))
    for minute in count(_FIRST_MINUTE):
        seconds = [time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(minute * 60 + each)).encode() for each in range(61)]
        age = b"%d" % minute
        for number, (at, ended, line) in enumerate(planned):
            began = b"%b%06d" % (seconds[int(at)], at % 1 * 1e6)
            over = b"%b%06d" % (seconds[int(ended)], ended % 1 * 1e6)
            yield line % {b"id": b"%d-%d" % (minute, number), b"age": age, b"began": began, b"ended": over}


def lab_events() -> Iterator[bytes]:
    """Lines without end: all logs of unmodified programs, each a day after the one before, of other namespaces."""
    logs = [gzip.decompress(each.read_bytes()).splitlines(keepends=True) for each in sorted(_LOGS.glob("*/*.gz"))]
    for turn in count():
        day = date(2027, 1, 1) + timedelta(days=turn % 30_000)
        shifted, space = b'"%sT' % day.isoformat().encode(), b'"namespace":"default-%d"' % turn
        for line in chain.from_iterable(logs):
            later = _DAY.sub(shifted, line).replace(b'"namespace":"default"', space)
            yield later.replace(b'"auditID":"', b'"auditID":"%d-' % turn)


def _minute(chance: random.Random) -> Iterator[tuple[float, float, bytes]]:
    """When each request begins and ends, and its line with gaps for what differs between minutes."""

    def call(at: float, user: str, agent: str, verb: str, target: str, *, part: str = "") -> tuple[float, float, bytes]:
        at += chance.uniform(0, 0.01)
        return at, at + chance.uniform(0.001, 0.02), _line(user, agent, verb, target, part)

    for node in range(300):
        name = f"node-{node:03}"
        start, kubelet = (
            chance.uniform(0, 9),
            (f"system:node:{name}", "kubelet/v1.36.3 (linux/amd64) kubernetes/0a1b2c3"),
        )
        for beat in range(6):
            yield call(start + beat * 10, *kubelet, "update", f"coordination.k8s.io/v1/leases/kube-node-lease/{name}")
        for pod in range(2):
            target = f"/v1/pods/shop-{node % 30}/shop-{node % 10}-db-{node}{pod}x@age@"
            yield call(start + pod, *kubelet, "get", target)
            yield call(start + pod + 0.02, *kubelet, "patch", target, part="status")
    for manager in range(20):
        user = f"system:serviceaccount:op-{manager}:op"
        operator = user, f"manager-{manager}/v0.1 (linux/amd64) kubernetes/0a1b2c3"
        for beat in range(30):
            yield call(beat * 1.99, *operator, "update", f"coordination.k8s.io/v1/leases/op-{manager}/leader")
        for shop in range(30):
            start, target = chance.uniform(0, 14), f"example.com/v1/shops/shop-{shop}/shop-{manager}"
            for beat in range(4):
                at = start + beat * 15
                yield call(at, *operator, "get", target)
                yield call(at + 0.02, *operator, "list", f"/v1/pods/shop-{shop}/")
                yield call(at + 0.04, *operator, "get", f"apps/v1/statefulsets/shop-{shop}/shop-{manager}-db")
                if chance.random() < 0.1:
                    yield call(at + 0.06, *operator, "update", target, part="status")


def _line(user: str, agent: str, verb: str, target: str, part: str) -> bytes:
    group, version, resource, namespace, name = target.split("/")
    sent = {"resourceVersion": "4711@age@"} if verb == "update" else {}
    uri = f"/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}".rstrip("/")
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "0f8c2a54-6a0e-4a0d-9d5c-@id@",
        "stage": "ResponseComplete",
        "requestURI": uri,
        "verb": verb,
        "user": {"username": user, "uid": "c1b6", "groups": ["system:serviceaccounts", "system:authenticated"]},
        "sourceIPs": ["10.0.3.17"],
        "userAgent": agent,
        "objectRef": {
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "apiGroup": group,
            "apiVersion": version,
            "subresource": part,
            **sent,
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "@began@Z",
        "stageTimestamp": "@ended@Z",
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": f'RBAC: allowed by ClusterRoleBinding "{resource}" of ClusterRole "all"',
        },
    }
    line = msgspec.json.encode(event).replace(b"%", b"%%") + b"\n"
    for gap in (b"id", b"age", b"began", b"ended"):
        line = line.replace(b"@%b@" % gap, b"%%(%b)b" % gap)
    return line


def _read_file(title: str, root: Path, file: Path, number: int) -> None:
    """Read it, and print how fast: by the clock, and by the CPU of the busiest process, as where nobody else works."""
    rooms = os.pathsep.join(str(each) for each in root.iterdir() if each.is_dir())
    began, env = time.monotonic(), {**os.environ, "PYTHONPATH": rooms}
    done = subprocess.run([sys.executable, "-c", _READ, file], env=env, cwd=root, check=True, capture_output=True)
    passed, seconds = time.monotonic() - began, [float(each) for each in done.stderr.split()]
    cpu = " and ".join(f"{each:.1f} s" for each in seconds if each)
    print(
        f"{title}: {number / max(seconds):,.0f} events/s by CPU ({cpu}), {number / passed:,.0f}/s by the clock",
        flush=True,
    )


def _compare(number: int, revision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "audit.log"
        with file.open("wb") as log:
            log.writelines(islice(events(), number))
        print(f"{number:,} events of metadata, {file.stat().st_size / number:,.0f} bytes each")
        if revision:
            code = Path(folder) / "before"
            code.mkdir()
            archive = subprocess.Popen(["git", "archive", revision], cwd=_ROOT, stdout=subprocess.PIPE)
            subprocess.run(["tar", "x", "-C", code], stdin=archive.stdout, check=True)
            if archive.wait():
                raise SystemExit(f"git archive {revision} failed")
            _read_file(f"before ({revision})", code, file, number)
        _read_file("now", _ROOT, file, number)


def _stream(lines: Iterator[bytes], size_bytes: int, marks: int) -> None:
    began, written, number, told = time.monotonic(), 0, 0, 0
    reader = subprocess.Popen(
        [sys.executable, "-c", _READ, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=_ROOT
    )
    assert reader.stdin is not None
    for line in lines:
        reader.stdin.write(line)
        written, number = written + len(line), number + 1
        if written * marks >= size_bytes * (told + 1):
            told += 1
            memory = " and ".join(f"{each:,} MiB" for each in _resident(reader.pid))
            rate = number / (time.monotonic() - began)
            print(f"{written / 1e9:5.2f} GB, {number:,} events, {rate:,.0f}/s by the clock: {memory}", flush=True)
        if written >= size_bytes:
            break
    reader.stdin.close()
    if reader.wait():
        raise SystemExit("levelog wakes failed")


def _resident(process: int) -> Iterator[int]:
    """MiB of memory of a process, and of those that it has started."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    yield next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        yield from _resident(int(child))


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(prog="python -m bench.wakes.speed", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="of the file")
    parser.add_argument("--before", default="", metavar="REVISION", help="read the file with that code, too")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="to stream; 0: none")
    parser.add_argument("--labs", action="store_true", help="stream the logs of bench/wakes/logs")
    options = parser.parse_args()
    _compare(options.events, options.before)
    if options.gigabytes:
        _stream(lab_events() if options.labs else events(), int(options.gigabytes * 1e9), marks=10)


if __name__ == "__main__":
    main()
