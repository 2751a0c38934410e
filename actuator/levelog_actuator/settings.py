"""How much an actuator does at once, how long it waits, and how often it tries."""

import random
from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog_store.actuate.outcomes import LOOK_AFTER


class ActuatorSettings(Struct, frozen=True, kw_only=True):
    """Settings of one actuator; all actuators of an application have the same.

    Raises ConfigurationError if a request may take longer than the claim under which it is sent, and without requests.
    """

    requests: int = 32
    """Requests at once."""
    group_requests: int = 24
    """Requests at once to one API group, so that a slow one (a webhook that hangs) leaves room for the others."""
    claimed: int = 256
    """Intents of one API group claimed at once, waiting ones included; of all groups together twice as many."""
    lease: timedelta = timedelta(seconds=30)
    """How long a claim lasts; so long an intent waits when its actuator was killed."""
    request: timedelta = timedelta(seconds=10)
    """Deadline of one request; as long as kube-apiserver gives an admission webhook by default."""
    attempts: int = 10
    """How often an intent is sent before it fails; with the delays below, over two to three minutes."""
    first_delay: timedelta = timedelta(milliseconds=500)
    most_delay: timedelta = timedelta(seconds=60)
    sweep: timedelta = timedelta(seconds=10)
    """How often the database is asked although nobody hinted at work."""
    look_after: timedelta = LOOK_AFTER
    """So long the log may take to show a write before its target is looked at; then again when the write is twice as
    old, at least every `most_look`."""
    most_look: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if min(self.requests, self.group_requests) < 1:
            raise ConfigurationError("an actuator needs a request at a time at least, in total and for each group")
        if self.request * 2 > self.lease:
            raise ConfigurationError(
                f"a claim of {self.lease.total_seconds():g} s is too short for requests that may take "
                f"{self.request.total_seconds():g} s: give it at least twice that"
            )

    @property
    def few(self) -> int:
        """So few intents waiting or under way that more are claimed: enough to go on with during the claim."""
        return min(2 * self.requests, self.claimed - 1)

    def delay(
        self, attempt: int, *, retry_after: timedelta | None = None, jitter: Callable[[], float] = random.random
    ) -> timedelta:
        """How long to wait after an attempt, counted from 1: doubled each time, less up to half of it at random."""
        doubled = min(self.first_delay * float(2 ** min(attempt - 1, 30)), self.most_delay)
        return max(doubled * (1 - jitter() / 2), retry_after or timedelta(0))
