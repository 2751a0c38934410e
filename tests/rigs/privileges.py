"""Users with no more rights than a process needs, as deploy/ says it: at NATS, and in PostgreSQL."""

from pathlib import Path
from typing import Final

import asyncpg
from sqlalchemy.engine import make_url

from levelog_base.wire.objects import Cluster
from levelog_log.transport.nkeys import Nkey
from rigs.natsusers import new_seed
from rigs.postgres import plain

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
NATS_USERS: Final = ("ingest", "process", "actuate", "history", "retry", "doctor")


def nats_users(folder: Path, cluster: Cluster, application: str) -> tuple[str, dict[str, Path]]:
    """The server's setting, and for each user the file with its seed."""
    setting = (DEPLOY / "nats-users.conf").read_text()
    files = {name: folder / f"{name}.nk" for name in NATS_USERS}
    for name, file in files.items():
        file.write_text(new_seed())
        setting = setting.replace(f"PUBLIC_NKEY_{name.upper()}", Nkey.from_seed(file.read_text()).public)
    return setting.replace("CLUSTER", cluster).replace("APPLICATION", application), files


async def grant_roles(url: str) -> None:
    """Run the script of the roles, as whom the URL names."""
    connection = await asyncpg.connect(plain(url), timeout=60)
    try:
        await connection.execute((DEPLOY / "roles.sql").read_text())
    finally:
        await connection.close()


def as_role(url: str, role: str) -> str:
    """The URL for one of the roles of its database, without a password."""
    found = make_url(url)
    return found.set(username=f"{found.database}_{role}", password=None).render_as_string(hide_password=False)
