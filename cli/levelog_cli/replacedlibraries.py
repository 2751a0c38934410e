"""Libraries that a layer of levelog stands in for: what to write in place of what people bring along from them."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class ReplacedLibrary(Struct, frozen=True):
    """A library by the name by which it is imported."""

    instead: str
    """What to do in place of importing it."""
    options: Mapping[str, str]
    """What `levelog run` has in place of the options that it does not share with the library's own command."""


REPLACED: Final = {
    "kopf": ReplacedLibrary(
        instead="write `from levelog.compat import kopf` in place of `import kopf` and `import kopf.cli`",
        options={
            **dict.fromkeys(("-A", "--all-namespaces"), "all namespaces are watched unless --namespace names some"),
            "-n": "write --namespace",
            **dict.fromkeys(("-v", "--verbose", "-d"), "write --log-level debug"),
            **dict.fromkeys(("-q", "--quiet"), "write --log-level warning"),
            **dict.fromkeys(("--log-prefix", "--log-refkey"), "--log-format json has the object in a field of its own"),
            **dict.fromkeys(("-L", "--liveness"), "--listen 127.0.0.1:8080 serves /healthz and /readyz"),
            **dict.fromkeys(
                ("--standalone", "--dev", "-P", "--peering", "-p", "--priority"), "processes share the work"
            ),
        },
    ),
}
