"""Previews: an environment for a pull request, deleted `spec.ttlSeconds` after it was created.

Shows a level with a deadline. The view takes `now` and names the time at which it has to be looked at again; no timer
runs meanwhile, and the due time survives a restart. A longer ttl moves the deadline, since the view reads it.

Run it with `levelog run examples/previews/previews.py` after `kubectl apply -f examples/previews/crd.yaml`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, field

from levelog import Intent, Level, Operator, Resource, Struct, delete, patch_status

op = Operator("previews")


class PreviewSpec(Struct):
    ttl_seconds: Annotated[int, Meta(ge=1)]


class PreviewStatus(Struct):
    expires_at: datetime | None = None


class Preview(Resource, group="example.com", version="v1", plural="previews", columns={"Expires": "status.expiresAt"}):
    spec: PreviewSpec
    status: PreviewStatus = field(default_factory=PreviewStatus)


class Life(Struct):
    """Whether a preview is there, and the end that its status shows."""

    is_there: bool
    expires_at: datetime | None


@op.view
def lives(preview: Preview, now: datetime) -> Level[Life]:
    """A preview may be there until its end, and says when that is."""
    created = preview.metadata.creation_timestamp or now
    end = created + timedelta(seconds=preview.spec.ttl_seconds)
    return Level(
        desired=Life(is_there=now < end, expires_at=end),
        actual=Life(is_there=True, expires_at=preview.status.expires_at),
        recheck_at=end if now < end else None,
    )


@op.reconcile(lives, writes={Preview: ["delete", "patch_status"]})
def keep(preview: Preview, level: Level[Life]) -> Iterator[Intent]:
    """Delete what is past its end; what it owns goes with it. Else show the end in the status."""
    if not level.desired.is_there:
        yield delete(preview)
    elif level.desired.expires_at is not None:
        yield patch_status(preview, {"expiresAt": level.desired.expires_at.isoformat()})
