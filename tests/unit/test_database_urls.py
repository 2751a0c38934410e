from pathlib import Path

import pytest

from levelog_base.errors import ConfigurationError
from levelog_store.connect.hosts import Hosts
from levelog_store.connect.locations import locate


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_all_ways_to_write_postgresql_are_one(scheme: str) -> None:
    location = locate(f"{scheme}://me:s3cret@db.example:6432/levelog?ssl=require")
    assert location.url.drivername == "postgresql+asyncpg"
    assert location.url.password == "s3cret"
    assert location.path is None
    assert location.name == "db.example:6432/levelog"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:p,w@a:5432,b/levelog?sslmode=require",
        "postgresql://me:p,w@/levelog?sslmode=require&host=a:5432,b",
        "postgresql://me:p,w@/levelog?host=a:5432&sslmode=require&host=b",
    ],
)
def test_all_ways_to_write_several_hosts_are_one(text: str) -> None:
    location = locate(text)
    assert location.url.host is None
    assert location.url.query == {"sslmode": "require", "host": "a:5432,b"}
    assert location.url.password == "p,w"
    assert location.name == "a:5432,b/levelog"


@pytest.mark.parametrize("place", ["a,b,c&port=1,2", "a&port=1,2"])
def test_ports_that_are_neither_one_nor_one_for_each_host_are_refused(place: str) -> None:
    location = locate(f"postgresql:///levelog?host={place}")
    with pytest.raises(ConfigurationError, match="give one port, or one for each host"):
        Hosts(location.url, location.name, print)


@pytest.mark.parametrize("place", ["me:a,b/c@host/x", "me:a,b@host/x", "me:a,b?c@host/x", "host/x?options=a,b"])
def test_a_comma_elsewhere_is_not_between_hosts(place: str) -> None:
    assert "host" not in locate(f"postgresql://{place}").url.query


@pytest.mark.parametrize("text", ["sqlite:////var/x.db", "sqlite+aiosqlite:////var/x.db", "/var/x.db"])
def test_all_ways_to_write_a_file_are_one(text: str) -> None:
    location = locate(text)
    assert location.path == Path("/var/x.db")
    assert location.name == "/var/x.db"


def test_paths_are_relative_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("sqlite:///x.db").path == locate("x.db").path == tmp_path / "x.db"


def test_a_home_folder_is_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("sqlite:///~/x.db").path == tmp_path / "x.db"


@pytest.mark.parametrize("text", ["mysql://me:s3cret@db/x", "postgresql+psycopg2://me:s3cret@db/x"])
def test_other_databases_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use postgresql:// or sqlite:///") as refused:
        locate(text)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
def test_state_in_memory_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="needs a file"):
        locate(text)


def test_a_file_on_a_host_is_refused_with_the_right_form() -> None:
    with pytest.raises(ConfigurationError, match="sqlite:/// and then the file's path"):
        locate("sqlite://var/x.db")


def test_an_unreadable_url_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigurationError) as refused:
        locate("postgresql://me:s3cret@db:port/x")
    assert "s3cret" not in str(refused.value)


def test_a_password_with_an_unencoded_at_is_refused_and_not_taken_for_a_host() -> None:
    with pytest.raises(ConfigurationError, match="has %40 in its place") as refused:
        locate("postgresql://me:p@s3cret@host/x")
    assert "s3cret" not in str(refused.value)
