"""Times and spans of time as pages show them, in UTC."""

from datetime import UTC, datetime, timedelta


def clock(time: datetime) -> str:
    """`14:05:09`."""
    return f"{time.astimezone(UTC):%H:%M:%S}"


def day_of(time: datetime) -> str:
    """`2026-11-21`."""
    return f"{time.astimezone(UTC):%Y-%m-%d}"


def stamp(time: datetime) -> str:
    """`2026-11-21 14:05:09`."""
    return f"{day_of(time)} {clock(time)}"


def iso(time: datetime) -> str:
    """`2026-11-21T14:05:09+00:00`."""
    return time.astimezone(UTC).isoformat()


def span(time: timedelta) -> str:
    """A whole number of the largest unit of which there are two at least: `90 min`, `2 h`."""
    seconds = max(0.0, time.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
