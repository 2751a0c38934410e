"""What one request costs kube-apiserver in processor time, by verb: `PYTHONPATH=tests python -m bench.callcosts`."""

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

from rigs.binaries import find_binaries
from rigs.controlplane import ControlPlane

CALLS: Final = 2000
MAPS: Final = "/api/v1/namespaces/default/configmaps"
DATA: Final = {f"key-{number}": "x" * 100 for number in range(10)}  # 1.3 kB an object

Request = tuple[str, str, dict[str, Any] | None]


def cpu_seconds(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def config_map(number: int, value: str = "") -> dict[str, Any]:
    return {"metadata": {"name": f"map-{number}"}, "data": {**DATA, "value": value}}


VERBS: Final[dict[str, Callable[[int], Request]]] = {
    "create": lambda number: ("POST", MAPS, config_map(number)),
    "get": lambda number: ("GET", f"{MAPS}/map-{number}", None),
    "list": lambda _: ("GET", f"{MAPS}?limit=20&resourceVersion=0&labelSelector=none", None),
    "update": lambda number: ("PUT", f"{MAPS}/map-{number}", config_map(number, "updated")),
    "patch": lambda number: ("PATCH", f"{MAPS}/map-{number}", {"data": {"value": "patched"}}),
    "delete": lambda number: ("DELETE", f"{MAPS}/map-{number}", None),
}


async def measure() -> None:
    async with ControlPlane(find_binaries(print), is_measured=True) as plane:
        server = plane.kube_apiserver
        assert server is not None
        headers = {"Authorization": f"Bearer {plane.admin_token}"}
        tls = ssl.create_default_context(cafile=str(plane.ca_file))
        async with aiohttp.ClientSession(plane.url, headers=headers) as session:
            idle = cpu_seconds(server.pid)
            await asyncio.sleep(10)
            idle = (cpu_seconds(server.pid) - idle) / 10
            for verb, request in VERBS.items():
                before, began = cpu_seconds(server.pid), asyncio.get_running_loop().time()
                for number in range(CALLS):
                    method, path, body = request(number)
                    kind = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
                    async with session.request(method, path, json=body, headers=kind, ssl=tls) as answer:
                        await answer.read()
                        answer.raise_for_status()
                took = asyncio.get_running_loop().time() - began
                used = cpu_seconds(server.pid) - before - idle * took
                print(f"{verb:8} {1e6 * used / CALLS:8.0f} µs")


if __name__ == "__main__":
    asyncio.run(measure())
