"""The functions of the PostgreSQL store, each time with one rule taken out; and the race that must notice it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import postgres_races as races
from laneway.store.postgres.statements import VERSION
from postgres_scene import Scene

__all__ = ["MUTANTS", "NO_LANE_LOCKS", "Mutant"]


class Mutant(NamedTuple):
    """The functions without a rule: a text that is replaced everywhere, and the race that must notice it."""

    rule: str
    race: Callable[[Scene], str]
    old: str
    new: str = ""

    def of(self, text: str) -> str:
        """Return the text of the functions without the rule."""
        assert self.old in text, f"this is in no function any more, so nothing is taken out: {self.old}"
        return text.replace(self.old, self.new)


NO_LANE_LOCKS = Mutant(
    "a claim locks its lane",
    races.two_claim_one_lane,
    "pg_try_advisory_xact_lock(laneway.lane_key(v_queue.name,",
    "0 <= length(concat(v_queue.name,",
)

MUTANTS = (
    NO_LANE_LOCKS,
    Mutant(
        "a settle locks its lanes", races.parked_behind_one_that_leaves,
        "cardinality(p_lanes) > 0 and laneway.lock_lanes(", "false and laneway.lock_lanes(",
    ),
    Mutant(
        "an action locks lanes", races.cancelled_beside_a_park, "where id = any (p_ids) and lane is not null and",
        "where false and",
    ),
    Mutant(
        "an action locks rows", races.cancelled_beside_a_claim,
        "perform 1 from (select id from laneway.job where id = any (p_ids) order by id for update) held;",
    ),
    Mutant(
        "recovery locks lanes", races.recovered_beside_a_park, "worker = p_worker and lane is not null and side is null", "false",
    ),
    Mutant(
        "a parked job counts as due", races.parked_by_a_later_clock, "and (j.state = 3 or j.due <= p_now)", "and j.due <= p_now",
    ),
    Mutant("a lane's next is looked for from a quiet time on", races.committed_late, "least(v_quiet - 1, j.place)", "j.place"),
    Mutant(
        "jobs of a quiet time may still come", races.committed_late_with_one_place,
        "least(v_quiet - 1, j.place)", "least(v_quiet, j.place)",
    ),
    Mutant(
        "a time is quiet if nobody pushes", races.committed_late,
        f"and laneway.is_free_v{VERSION}(85) then", "then",
    ),
    Mutant("a time is quiet if no turn is open", races.acted_late, f"and laneway.is_free_v{VERSION}(83) and", "and"),
    Mutant(
        "a time is quiet if nobody acts", races.acted_late,
        "perform pg_advisory_xact_lock_shared(hashtextextended('laneway', 83));  -- as a push: it may",
        "perform 1;  -- as a push: it may",
    ),
    Mutant(
        "none is parked behind nobody", races.a_walk_that_ends_between_two_of_a_lane, "h.lane = l.lane and h.holds = 1", "true",
    ),
    Mutant(
        "an exchange locks its worker", races.lost_and_on_its_way,
        "if pg_advisory_xact_lock_shared(hashtextextended(p_worker, 77)) is null then null; end if;",
    ),
    Mutant(
        "taking claims locks their worker", races.lost_and_on_its_way,
        "perform pg_advisory_xact_lock(hashtextextended(p_worker, 77));",
    ),
    Mutant(
        "an exchange has the worker's number", races.lost_and_late, "where worker = p_worker and epoch = p_epoch",
        "where worker = p_worker",
    ),
    Mutant("taking claims ends the number", races.lost_and_late, "delete from laneway.fence where worker = p_worker;"),
    Mutant("who gives back waits", races.given_back_beside_a_mark, "if p_keep is not null then", "if false then"),
    Mutant(
        "lanes are locked in one order", races.settled_in_two_orders,
        "select distinct laneway.lane_key(q, l) from unnest(p_queues, p_lanes) u(q, l) order by 1",
        "select laneway.lane_key(q, l) from unnest(p_queues, p_lanes) u(q, l)",
    ),
    Mutant("lanes are pushed in one order", races.collected_in_two_orders, 'order by u.id collate "C"'),
    Mutant(
        "a lane that has left is pushed again", races.collected_while_the_lane_leaves,
        "for update;\n            exit when found;", "for update;\n            exit;",
    ),
    Mutant(
        "a push locks the lane it joins", races.collected_while_the_lane_leaves,
        "perform 1 from laneway.job where id = v_lane.id for update;", "perform 1 from laneway.job where id = v_lane.id;",
    ),
    Mutant(
        "keys are pushed in one order", races.unique_in_two_orders, "order by case when v_sorted then unique_key end,",
        "order by",
    ),
    Mutant(
        "chosen ids are pushed in one order", races.ids_in_two_orders,
        "case when v_sorted and p_replaces and unique_key is null then id end, seq", "seq",
    ),
    Mutant(
        "claims skip what is locked", races.claimed_beside_a_claim,
        "limit v_want - v_number for update skip locked", "limit v_want - v_number for update",
    ),
    Mutant(
        "claims among lanes skip it", races.claimed_beside_a_claim_among_lanes,
        "limit v_want for update skip locked\n                                ) p",
        "limit v_want for update\n                                ) p",
    ),
    Mutant(
        "a fold counts who was in progress", races.pushed_over_a_fold,
        "union all\n        select l.* from pg_snapshot_xip(v_old) x join laneway.ledger l on l.xid = x",
    ),
    Mutant(
        "counts have who was in progress", races.pushed_over_a_fold,
        "union all\n        select l.* from book, pg_snapshot_xip(book.snap) x join laneway.ledger l on l.xid = x",
    ),
    Mutant(
        "one folds at a time", races.folded_by_two, "if not pg_try_advisory_xact_lock(hashtextextended('laneway', 80)) then",
        "if false then",
    ),
    Mutant(
        "a push keeps its queue's kind", races.two_kinds_in_a_queue,
        "if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('laneway', 78))) is null then null; end if;",
    ),
    Mutant(
        "a push that knows its queue keeps its kind", races.two_kinds_in_a_known_queue,
        "if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('laneway', 78))) is null then null; end if;",
    ),
    Mutant(
        "a queue that is known is looked at if there are collectors", races.known_before_it_was_a_collectors,
        "if not p_known or pg_sequence_last_value('laneway.special') is not null then", "if not p_known then",
    ),
    Mutant(
        "a copy that closes the store lets pushes look", races.known_before_it_was_closed,
        "    if p_closed then\n        perform nextval('laneway.special');\n    end if;\n",
    ),
    Mutant(
        "only READ COMMITTED", races.another_isolation_level,
        "if not p_inside and current_setting('transaction_isolation') <> 'read committed' then", "if false then",
    ),
)  # fmt: skip
