"""What an API server was asked, read from its audit log."""

import os
from pathlib import Path
from typing import Any

import msgspec

from rigs.apirequests import WRITES
from rigs.waiting import until

# Requests of the server to itself and health checks are left out: nobody counts them. The stage RequestReceived is
# kept: it tells which requests are still being answered.
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"""


class AuditedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An answered request; `name` is empty for lists and for generated names."""

    verb: str
    user: str
    user_agent: str
    code: int
    resource: str
    subresource: str
    name: str

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


def _answered(line: dict[str, Any]) -> AuditedRequest:
    about = line.get("objectRef", {})
    return AuditedRequest(
        verb=line["verb"],
        user=line.get("user", {}).get("username", ""),
        user_agent=line.get("userAgent", ""),
        code=line.get("responseStatus", {}).get("code", 0),
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        name=about.get("name", ""),
    )


class AuditLog:
    """Reads one server's log, each line once.

    A watch is reported when it starts and not when it ends. A killed server leaves requests without an answer; they
    are reported with code 0 once `forget_open` was called. Whether an answer 200 to a patch changed
    the object, the log does not tell: compare resourceVersions for that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._answered: list[AuditedRequest] = []
        self._open: dict[str, dict[str, Any]] = {}

    async def requests(self, *, resource: str | None = None, user: str | None = None) -> list[AuditedRequest]:
        """All requests in the order of their answers, including every request that was sent before this call."""

        async def is_settled() -> bool:
            self._read()
            return not self._open

        await until(is_settled, "an audit log without unanswered requests")
        return [
            request
            for request in self._answered
            if resource in (None, request.resource) and user in (None, request.user)
        ]

    async def writes(self, *, resource: str | None = None) -> list[AuditedRequest]:
        """Those requests that were writes and answered with a code below 300."""
        requests = await self.requests(resource=resource)
        return [request for request in requests if request.is_write and 200 <= request.code < 300]

    def forget_open(self) -> None:
        """Give up on requests without an answer, and on a line that was being written: the server was killed."""
        self._read()
        if self.path.exists():
            os.truncate(self.path, self._position)
        self._answered += map(_answered, self._open.values())
        self._open.clear()

    def begin_anew(self) -> None:
        """Leave out all requests that were sent before."""
        self._read()
        self._answered.clear()
        self._open.clear()

    def _read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break  # still being written
                self._position += len(raw)
                self._take(msgspec.json.decode(raw))

    def _take(self, line: dict[str, Any]) -> None:
        if line["stage"] == "RequestReceived":
            self._open[line["auditID"]] = line
        elif self._open.pop(line["auditID"], None) is not None:
            self._answered.append(_answered(line))
