"""Waiting for what a processor makes in the database."""

import logging
from datetime import timedelta
from typing import Final

from levelog.wire.objects import Application
from levelog_log.hints import Hints, Topic
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.look.overview import find_scopes
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

_SWEEP: Final = timedelta(seconds=10)  # a hint may be lost


async def await_scope(database: Database, stream: LogStream, application: Application, hints: Hints) -> Scope:
    """The application's scope, as soon as a processor has opened it for this log."""
    hint = hints.listen(Topic.INTENT)
    is_told = False
    while True:
        async with database.reading() as connection:
            for scope in await find_scopes(connection):
                is_same = scope.application == application and scope.cluster == stream.cluster
                if is_same and scope.stream_created == stream.identity.created:
                    return scope
        if not is_told:
            log.info("waits for `levelog process` to open application %s", application)
            is_told = True
        await hint.wait(_SWEEP)
