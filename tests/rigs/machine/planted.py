"""Which bugs are planted, which invariant each breaks, and within how many examples that is found."""

from typing import Final

from rigs.machine import bugs
from rigs.machine.bugs import Bug
from rigs.machine.daemons.daemonbugs import DAEMON_BUGS
from rigs.machine.edges.edgebugs import EDGE_BUGS
from rigs.machine.planting import Planted


def _planted(bug: Bug, *invariants: int, examples: int, seed: int = 0) -> Planted:
    return Planted(bug, invariants, examples, seed)


PLANTED: Final = (
    _planted(bugs.dropped_absent_key, 5, 4, examples=20, seed=1),
    _planted(bugs.dropped_old_key, 5, 4, examples=40, seed=1),
    _planted(bugs.readers_of_levels_not_told, 5, 4, examples=40, seed=1),
    _planted(bugs.levels_go_untold, 5, 4, examples=40, seed=1),
    _planted(bugs.children_no_dependency, 5, 4, examples=40, seed=1),
    _planted(bugs.readers_of_own_levels_not_woken, 5, 4, examples=40, seed=3),
    _planted(bugs.left_out_untold, 5, 4, examples=80, seed=8),
    _planted(bugs.readers_do_not_wait, 9, examples=40, seed=1),
    _planted(bugs.levels_by_name_wake_nobody, 4, 5, examples=60, seed=1),
    _planted(bugs.every_telling_counts, 6, examples=40, seed=1),
    _planted(bugs.deletions_are_not_held_back, 14, examples=200, seed=7),
    _planted(bugs.failures_under_keys_count_for_nobody, 4, 5, 14, examples=60),
    _planted(bugs.failures_wake_nobody, 4, 5, examples=60),
    _planted(bugs.wake_by_version, 6, examples=40),
    _planted(bugs.key_without_round, 7, 4, 5, examples=40),
    _planted(bugs.rounds_begin_anew, 7, 4, 5, examples=40),
    _planted(bugs.owners_have_no_namespace, 19, 3, 4, 5, 6, examples=40, seed=3),
    _planted(bugs.strangers_are_adopted, 19, examples=40, seed=3),
    _planted(bugs.incarnations_are_not_asked_for, 11, examples=40, seed=6),
    _planted(bugs.settled_by_receipt, 8, 4, 5, 7, examples=160, seed=11),
    _planted(bugs.others_are_not_followed, 5, 4, 3, examples=40),
    _planted(bugs.others_wake_nothing, 5, 4, examples=40),
    _planted(bugs.levels_of_others_stay_as_read, 5, 4, examples=80),
    _planted(bugs.old_history_acted_on, 9, 4, 5, examples=40),
    _planted(bugs.never_superseded, 8, 4, 5, 11, examples=40),
    _planted(bugs.committed_without_lease, 10, 13, examples=200),
    _planted(bugs.reads_not_checked_again, 5, 4, examples=0),
    _planted(bugs.late_decisions_by_wakeup_alone, 5, 4, 11, examples=120, seed=10),
    _planted(bugs.unlisted_objects_stay, 3, 5, 6, examples=60, seed=2),
    _planted(bugs.late_records_count, 3, 6, examples=240, seed=1),
    _planted(bugs.due_by_own_clock, 6, 4, examples=40, seed=1),
    _planted(bugs.clock_set_back_unnoticed, 21, 4, 5, examples=40, seed=2),
    _planted(bugs.waits_not_begun_anew, 6, 21, examples=40, seed=2),
    _planted(bugs.blocked_levels_owe_a_round, 6, examples=40, seed=4),
    _planted(bugs.what_waits_goes_between_claims, 22, examples=0),
    _planted(bugs.waits_begin_anew, 22, 6, 21, examples=0),
    _planted(bugs.rounds_are_owed_at_once, 6, examples=0),
    _planted(bugs.intents_go_untold, 23, examples=0),
    _planted(bugs.ends_are_told_too_soon, 23, examples=0),
    _planted(bugs.ends_of_backfills_are_told_by_one_writer, 23, examples=0),
    _planted(bugs.holes_are_jumped_over, 13, examples=40),
    _planted(bugs.bodies_leave_too_soon, 3, 4, 5, 6, examples=80),
    _planted(bugs.settling_counts_as_rest, 8, 4, 5, 7, 6, examples=40),
    _planted(bugs.folded_on_after_a_crash, 13, 3, 4, 5, examples=20),
    _planted(bugs.sent_before_it_is_durable, 7, examples=20),
    _planted(bugs.claims_are_not_durable, 7, examples=20),
    _planted(bugs.lists_not_awaited, 9, examples=160),
    *EDGE_BUGS,
    *DAEMON_BUGS,
)
