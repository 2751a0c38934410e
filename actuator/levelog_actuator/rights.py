"""The API verbs that an actuator needs for each verb of an intent."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from levelog.intents import Verb


class Right(Struct, frozen=True):
    """A verb of the API on a resource, or on a subresource of it."""

    verb: str
    subresource: str = ""


_LOOK: Final = Right("get")
"""Asked for a target that the decision did not see, and after a request whose effect is not known."""

RIGHTS: Final[Mapping[Verb, tuple[Right, ...]]] = {
    "apply": (_LOOK, Right("patch"), Right("create")),  # a server-side apply of what is not there needs both
    "create": (_LOOK, Right("create")),
    "patch": (_LOOK, Right("patch")),
    "patch_status": (_LOOK, Right("patch", "status")),
    "delete": (_LOOK, Right("delete")),
    "event": (_LOOK, Right("patch"), Right("create")),  # of Events, not of what they are about
}
"""By the verb of the intent."""

TO_BLOCK_OWNERS: Final = Right("update", "finalizers")
"""Needed on the owner of an applied or created object if OwnerReferencesPermissionEnforcement is on."""
