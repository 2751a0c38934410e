"""What differs between the databases is the subject of `tests/contract/store`; here one is enough in `make test`."""

from pathlib import Path

import pytest

from rigs.migrated import migrated_sqlite


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database, at the newest revision; of each kind in `make test-all`."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return migrated_sqlite(tmp_path)
