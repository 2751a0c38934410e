"""Kopf's settings, which a start-up handler may change: those without effect are named in a warning."""

import logging
from typing import Any, Final

from levelog.compat.kopf.handlererrors import PermanentError

HARMLESS: Final = {"peering.standalone", "posting.enabled", "posting.level", "posting.loggers"}
"""Settings that say what is so anyway, or of what levelog has its own, and are passed over in silence."""


class SettingsPart:
    """A group of settings."""

    def __init__(self, path: str, logger: logging.Logger) -> None:
        self.__dict__.update(_path=path, _logger=logger)

    def __getattr__(self, name: str) -> "SettingsPart":
        if name.startswith("_"):
            raise AttributeError(name)
        found = SettingsPart(f"{self.__dict__['_path']}{name}.", self.__dict__["_logger"])
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        path = f"{self.__dict__['_path']}{name}"
        if path not in HARMLESS:
            self.__dict__["_logger"].warning(
                "settings.%s means nothing to levelog: docs/kopf-features.md#operator-handling", path
            )
        self.__dict__[name] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        raise PermanentError(
            f"settings.{self.__dict__['_path'].rstrip('.')}[{key!r}]: levelog records all objects of a resource, so "
            "that handlers would be called for more than these: filter in the decorators, labels={…} or when=…"
        )


class OperatorSettings(SettingsPart):
    """What `settings` is in handlers of a Kopf file."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__("", logger)


class UnusedStorage:
    """Where Kopf would keep progress, which levelog keeps in the log and in SQL."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take whatever a file gives."""
