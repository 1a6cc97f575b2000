"""Ends: what runs meant, as the scripts take it.

Successes are many and alike, so they go as one flat list; other ends are a list each. A collector's run has an end for each lane.
This is done for every job: what can be made for many at once is.

Enters: `Settled`.  Leaves: `Ends` for each queue.  Called by: `exchange`, the store (`error_text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from laneway.job import Unit, payload_id
from laneway.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.store.failures import add_error
from laneway.store.inspect import Run

__all__ = ["MOST_ALIKE", "Ends", "Sorted", "error_text", "sort_out"]

#: So many at a time: a script hands over only some arguments at once.
MOST_ALIKE = 1000

_to_json = msgspec.json.Encoder().encode
_to_lines = msgspec.json.Encoder().encode_lines
_to_msgpack = msgspec.msgpack.Encoder().encode


class Ends(Struct):
    """What is to be settled in one queue."""

    ids: list[str] = field(default_factory=list[str])  #: of successes: jobs, or lanes of a collector
    tokens: list[str] = field(default_factory=list[str])
    lanes: list[str | None] = field(default_factory=list[str | None])
    runs: list[Run] = field(default_factory=list[Run])
    others: list[Any] = field(default_factory=list[Any])  #: a list each, see `_other`
    results: list[Any] = field(default_factory=list[Any])  #: flat: id, milliseconds, microseconds, value
    done_at: list[int] = field(default_factory=list[int])  #: which of all that is settled these are
    others_at: list[int] = field(default_factory=list[int])
    of_lanes: bool = False  #: they are of a collector's runs

    def packed(self) -> tuple[bytes, bytes, bytes]:
        """Return the three lists as a script takes them: nothing for an empty one."""
        return (
            _to_msgpack(self.done()) if self.ids else b"",
            _to_msgpack(self.others) if self.others else b"",
            _to_msgpack(self.results) if self.results else b"",
        )

    def done(self) -> list[Any]:
        """Return successes as a flat list: id, token, lane or False, run."""
        flat: list[Any] = [False] * (4 * len(self.ids))
        flat[::4], flat[1::4] = self.ids, self.tokens
        flat[2::4] = [False if lane is None else lane for lane in self.lanes]
        flat[3::4] = _to_lines(self.runs).decode().split("\n")[: len(self.ids)]
        return flat

    def one(self) -> tuple[str | bytes, ...]:
        """Return the one success in a lane that there is: id, token, lane, run."""
        return (self.ids[0], self.tokens[0], self.lanes[0] or "", _to_json(self.runs[0]))

    def goes_on(self) -> bool:
        """Say whether it is the success of one job in a lane, and nothing more."""
        return len(self.ids) == 1 and self.lanes[0] is not None and not (self.others or self.results or self.of_lanes)

    def plain(self) -> tuple[str | bytes, ...] | None:
        """Return successes and nothing else, without lanes or results, as `plain.lua` takes them; None if there is more to it."""
        ids = self.ids
        if self.others or self.results or self.of_lanes or not len(set(ids)) == len(ids) <= MOST_ALIKE:
            return None
        if self.lanes.count(None) < len(ids):
            return None
        return (_to_json(self.runs)[1:-1], *ids, *self.tokens)


class Sorted(Struct, frozen=True):
    """What is to be settled, sorted."""

    by_queue: dict[str, Ends]
    ids: list[str]  #: of all, in order


def sort_out(settled: Sequence[Settled]) -> Sorted:
    """Sort outcomes by queue."""
    by_queue: dict[str, Ends] = {}
    ids: list[str] = []
    for item in settled:
        claim = item.claim
        ends = by_queue.get(claim.queue)
        if ends is None:
            ends = by_queue[claim.queue] = Ends()
        ends.of_lanes = ends.of_lanes or claim.collects
        for unit, outcome in zip(claim.units, item.outcomes, strict=True):
            _add(ends, ids, item, unit, outcome)
    return Sorted(by_queue, ids)


def _add(ends: Ends, ids: list[str], item: Settled, unit: Unit, outcome: Outcome) -> None:
    claim = item.claim
    if type(outcome) is Done:
        run = Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished, "done")
        ends.runs.append(run)
        ends.ids.append(unit.id)
        ends.tokens.append(str(claim.token))
        ends.lanes.append(unit.lane)
        ends.done_at.append(len(ids))
        if outcome.result is not None and outcome.keep > 0:
            ends.results += (unit.id, -(-outcome.keep // 1000), outcome.keep, outcome.result.decode())
    else:
        run = Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished, "")
        ends.others.append(_other(unit, claim.token, outcome, run))
        ends.others_at.append(len(ids))
    ids.append(unit.id)


def _other(unit: Unit, token: int, outcome: Outcome, run: Run) -> list[Any]:
    """Return an end that is no success: id, token, outcome, after, error, run up to the outcome, and what death means.

    That is whether it halts a job's lane, or which payloads of a collector's lane die.
    """
    after, error = 0, ""
    last: bool | list[str] = [] if unit.payloads else False
    match outcome:
        case Retrying():
            after, error = outcome.after, error_text(outcome.error, unit.attempt)
        case Snoozed():
            after = outcome.after
        case Dead():
            error = error_text(outcome.error, unit.attempt)
            named = dict.fromkeys(outcome.payloads)
            last = [payload_id(run.queue, unit.lane or "", body)[2:] for body in named] if unit.payloads else outcome.halt
        case Cancelled() | Done():
            pass
    return [unit.id, str(token), outcome.name, after, error, _to_json(run).decode()[:-3], last]


def error_text(error: ErrorInfo, attempt: int) -> str:
    """Return an error as JSON; the script adds when."""
    return add_error(None, error, 0, attempt)[1:-1].decode()
