"""What stands for a redacted value in all that is recorded."""

import re
from typing import Any, Final

PREFIX: Final = "hmac-sha256:"
HASHED: Final = re.compile(rb"hmac-sha256:[0-9a-f]{64}")


def is_redacted(value: Any) -> bool:
    """Whether a value is a hash that stands for another one."""
    return isinstance(value, str) and HASHED.fullmatch(value.encode(errors="replace")) is not None


def without_hashes(content: bytes | None) -> bytes | None:
    """JSON in which all redacted values look alike: what is equal then differs in those alone."""
    return content and HASHED.sub(PREFIX.encode(), content)
