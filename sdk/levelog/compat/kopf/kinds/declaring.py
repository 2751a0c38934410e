"""What Kopf's handlers of all kinds share, that are called for objects with keyword arguments."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from levelog.compat.kopf.attempts import Attempts
from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.patches import WRITES
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.forobjects import CalledHandler, CallOptions
from levelog.handlers.injection import Given, Injections
from levelog.handlers.readers import ObjectReader
from levelog.indices import Index
from levelog.selectors import Selector
from levelog_base.mappings import plain
from levelog_base.wire.canonical import digest

LONGEST: Final = timedelta(hours=1)
"""Time limit of one call without a `timeout`."""
GIVEN: Final = {"retry": Given.RETRY, "started": Given.STARTED}


class AttemptedHandler(CalledHandler):
    """A function of a Kopf file; levelog calls one that stands around it."""

    attempts: Attempts
    filters: Filters

    def take(self, name: str, attempts: Attempts, parameter: str, code: tuple[Any, ...], **options: Any) -> None:
        """Stand for a constructor: the signature is known. `code` counts in the fingerprint of what it is given."""
        self.name, self.attempts, self.parameter = name, attempts, parameter
        self.is_async, declared = attempts.is_async, attempts.declared
        cls, limits, self.filters = declared.cls, declared.limits, declared.filters
        selector = Selector() if self.filters.takes_all else Selector(when=self._takes)
        said: dict[str, Any] = {"of": cls, "selector": selector, "writes": {cls: WRITES}, "retries": limits.again}
        said |= {"timeout": limits.timeout or LONGEST, "backoff": declared.backoff, **options}
        self.deleting = bool(options.get("finalizer"))
        self.options = CallOptions(**said)
        self.limits = self.options.within(CallOptions())
        self.reader = ObjectReader(cls, selector, is_plain=True)
        self.given = Injections({}, GIVEN, {}, digest(value_fingerprint((self.filters, *code))))

    @property
    def reads(self) -> Mapping[str, Any]:
        """The indices that the function looks up are not read, but have to be filled first."""
        return dict.fromkeys(self.attempts.indices, Index[Any, Any])

    @property
    def origin(self) -> Any:
        """The function that its user wrote."""
        return self.attempts.function

    def handed(self, parent: Any) -> dict[str, Any]:
        """All of an object, with what its class says where a list of the API leaves that out."""
        resource = self.reader.resource
        return {"apiVersion": resource.api_version, "kind": resource.kind, **plain(parent)}

    def arguments(self, request: Any, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of the function that stands around the user's."""
        return {self.parameter: request, **self.given.arguments(given)}

    def _takes(self, body: Mapping[str, Any]) -> bool:
        return self.filters.take(self.attempts.object_arguments(plain(body)))
