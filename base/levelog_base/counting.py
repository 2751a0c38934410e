"""Numbers in sentences that people read."""


def counted(number: int, noun: str) -> str:
    """A number with a noun whose plural ends in s: `1 object`, `3 objects`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
