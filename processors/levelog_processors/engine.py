"""One engine to step: it folds records, decides on what is due, and tells what is due next."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from levelog.calls.caller import THREADS
from levelog.secrets.redaction import Redactor
from levelog.wire.objects import Sequence
from levelog.wire.records import LoggedRecord
from levelog_log.stream import LogStream
from levelog_processors.decide.cut import CallCounts, Cut, Decider
from levelog_processors.decide.functions import PATIENCE, Acting, Caller
from levelog_processors.decide.readiness import Lag, Readiness
from levelog_processors.fold.batches import Folded, Folder
from levelog_processors.program import Program
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.decide import inputreads as stored
from levelog_store.fold.heldreads import read_syncs
from levelog_store.owners.leases import check_checkpoints
from levelog_store.rows import Scope, ViewParent

log = logging.getLogger(__name__)


class Engine:
    """Folds and decides for the partitions that are held, one step at a time; who steps it chooses when.

    Processors, simulations, replay of a whole log and the state machines of the tests all step this one.
    Steps raise LeaseLost, with nothing committed, if the partitions are not held any more, and CommitsLost if the
    tables are not where the steps before had left them: then `hold` begins anew.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        *,
        stream: LogStream | None = None,
        threads: int = THREADS,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
        claimant: Claimant | None = None,
    ) -> None:
        """`stream` tells how far other processors have to fold; without one all partitions are held here.

        The others are as `Decider` takes them.
        """
        self._database = database
        self._scope = scope
        self._program = program
        self._stream = stream
        self._folder = Folder(database, scope, program)
        self._decider = Decider(
            database,
            scope,
            program,
            threads=threads,
            patience=patience,
            redactor=redactor,
            caller=caller,
            claimant=claimant,
        )
        self._readiness: Readiness | None = None
        """None: to be looked up."""
        self._told = frozenset[str]()
        """Resources of which it was said that they are recorded in another version."""
        self.epochs: Mapping[int, int] = {}
        """Leases under which it commits, by partition."""
        self.folded_to: dict[int, int] = {}
        """Sequence up to which each partition that is held is folded."""
        self.newest = Sequence(0), ""
        """The newest record that the tables come from, of any partition, when the partitions were taken."""

    @property
    def acting(self) -> Acting:
        """The reconcile functions that run."""
        return self._decider.acting

    @property
    def claimant(self) -> Claimant | None:
        """Who gets what is decided without asking for it."""
        return self._decider.claimant

    @claimant.setter
    def claimant(self, claimant: Claimant | None) -> None:
        self._decider.claimant = claimant

    @property
    def calls(self) -> CallCounts:
        """How often user functions were called."""
        return self._decider.calls

    @property
    def is_shared(self) -> bool:
        """Tell whether others hold partitions too."""
        return len(self.epochs) < self._scope.partitions

    def on_return(self, told: Callable[[], None]) -> None:
        """Have `told` called when a slow reconcile function has returned, so that there is something to decide."""
        self._decider.on_return(told)

    async def close(self) -> None:
        """End what runs of users' functions, as far as it can be ended."""
        await self._decider.close()

    async def hold(self, epochs: Mapping[int, int]) -> None:
        """Work under these leases from now on, from the checkpoints of their partitions."""
        async with self._database.reading() as connection:
            checkpoints = await stored.read_checkpoints(connection, self._scope)
            sequence, record_id = await stored.read_last_record(connection, self._scope)
        self.newest = Sequence(sequence), record_id
        self.epochs = epochs
        self._folder.forget()
        self.folded_to = {partition: checkpoints[partition] for partition in epochs}
        self._readiness = None

    async def fold(self, records: Iterable[LoggedRecord]) -> Folded:
        """Fold those of the records that are not folded yet: of partitions that are held, in the order of the log."""
        fresh = [logged for logged in records if logged.sequence > self.folded_to[logged.partition]]
        folded = await self._folder.fold(self.epochs, fresh, self.folded_to)
        for logged in fresh:
            self.folded_to[logged.partition] = logged.sequence
        if folded.has_list:
            self._readiness = None
        return folded

    async def confirm(self, sequence: int) -> None:
        """Note in the tables that the partitions that are held have nothing up to a sequence that is not folded."""
        await self._folder.confirm(self.epochs, sequence, self.folded_to)
        self.folded_to = {partition: max(at, sequence) for partition, at in self.folded_to.items()}

    async def readiness(self) -> Readiness:
        """Which views may decide, and in which namespaces."""
        found = self._readiness
        if found is None:
            async with self._database.reading() as connection:
                rows = (await read_syncs(connection, self._scope)).values()
            found = Readiness(self._program, rows, partitions=self._scope.partitions)
            for name in sorted(found.others.keys() - self._told):
                said = "%s is recorded in version %s, this code declares %s: its views wait for a list in that version"
                log.warning(said, name, *found.others[name])
            self._told = frozenset(found.others)
        # another processor may fold the end of a list: then it is looked up again at the next step
        is_final = not self.is_shared or len(found.views) == len(self._program.views)
        self._readiness = found if is_final else None
        return found

    async def decide(
        self,
        *,
        but_not: Collection[str] = (),
        leaving: Collection[ViewParent] = (),
        read_to: int = 0,
        now: datetime | None = None,
    ) -> Cut | None:
        """Decide on one batch of wakeups that are due, at `now` or else by the database's clock; None: no view may.

        `but_not` names views that wait for something else, `leaving` levels. The partitions that are held have nothing
        up to `read_to` that is not folded.
        """
        readiness = await self.readiness()
        views = [name for name in readiness.views if name not in but_not]
        if not views:
            return None
        self._decider.namespaces = readiness.namespaces
        lag = Lag(self._database, self._scope, self._program, self._stream, frozenset(self.epochs), read_to)
        return await self._decider.cut(
            self.epochs, views, lag.concerns, folded_to=self.folded_to, leaving=leaving, now=now
        )

    async def next_due(self) -> tuple[datetime, datetime] | None:
        """When the first wakeup is due that waits for its time, and the database's time now; None if none waits."""
        async with self._database.reading() as connection:
            check_checkpoints(self._scope, await stored.read_checkpoints(connection, self._scope), self.folded_to)
            return await stored.read_next_due(connection, self._scope, list(self.epochs))
