import gzip
import zlib
from base64 import b64encode, urlsafe_b64encode

import pytest

from rigs.canaries import found_in

CANARY = "Canary_0123456789"


@pytest.mark.parametrize(
    "data",
    [
        CANARY.encode(),
        *(b64encode(b"x" * before + CANARY.encode() + b"y" * after) for before in range(4) for after in range(3)),
        urlsafe_b64encode(CANARY.encode()),
        b"..." + gzip.compress(b"{" + CANARY.encode() + b"}", mtime=0) + b"...",
        b"..." + zlib.compress(b64encode(CANARY.encode())),
        CANARY.encode().hex().encode(),
    ],
)
def test_a_canary_is_found_in_each_form(data: bytes) -> None:
    assert found_in(data, [CANARY, "Canary_9876543210"]) == {CANARY}
