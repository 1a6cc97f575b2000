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

from laneway.job import Claim, LaneClaim, payload_id
from laneway.outcome import Cancelled, Dead, Done, Each, ErrorInfo, Outcome, Retrying, Settled, Snoozed
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
        ends = by_queue.get(claim.job.queue)
        if ends is None:
            ends = by_queue[claim.job.queue] = Ends()
        if claim.lanes:
            ends.of_lanes = True
            for lane, outcome in _outcomes(item):
                _add(ends, ids, item, outcome, lane)
        else:
            _add(ends, ids, item, item.outcome, None)
    return Sorted(by_queue, ids)


def _outcomes(item: Settled) -> list[tuple[LaneClaim, Outcome]]:
    """Return a run's lanes, each with its outcome; one outcome alone is meant for all."""
    given = item.outcome
    outcomes = given.outcomes if isinstance(given, Each) else (given,) * len(item.claim.lanes)
    return list(zip(item.claim.lanes, outcomes, strict=True))


def _add(ends: Ends, ids: list[str], item: Settled, outcome: Outcome | Each, lane: LaneClaim | None) -> None:
    claim = item.claim
    job = claim.job
    id_, name, enqueued = (job.id, job.lane, claim.enqueued) if lane is None else (lane.id, lane.lane, lane.enqueued)
    if type(outcome) is Done:
        ends.runs.append(Run(id_, job.task, job.queue, name, enqueued, item.started, item.finished, "done"))
        ends.ids.append(id_)
        ends.tokens.append(str(claim.token))
        ends.lanes.append(name)
        ends.done_at.append(len(ids))
        if outcome.result is not None and outcome.keep > 0:
            ends.results += (id_, -(-outcome.keep // 1000), outcome.keep, outcome.result.decode())
    else:
        run = Run(id_, job.task, job.queue, name, enqueued, item.started, item.finished, "")
        ends.others.append(_other(id_, claim, outcome, run, lane))
        ends.others_at.append(len(ids))
    ids.append(id_)


def _other(id_: str, claim: Claim, outcome: Outcome | Each, run: Run, lane: LaneClaim | None) -> list[Any]:
    """Return an end that is no success: id, token, outcome, after, error, run up to the outcome, and what death means.

    That is whether it halts a job's lane, or which payloads of a collector's lane die.
    """
    attempt = claim.attempt if lane is None else lane.attempt
    after, error = 0, ""
    last: bool | list[str] = False if lane is None else []
    match outcome:
        case Retrying():
            after, error = outcome.after, error_text(outcome.error, attempt)
        case Snoozed():
            after = outcome.after
        case Dead():
            error = error_text(outcome.error, attempt)
            named = dict.fromkeys(outcome.payloads)
            last = outcome.halt if lane is None else [payload_id(run.queue, lane.lane, body)[2:] for body in named]
        case Cancelled():
            pass
        case _:
            raise TypeError(f"a job cannot end so: {outcome!r}")
    return [id_, str(claim.token), outcome.name, after, error, _to_json(run).decode()[:-3], last]


def error_text(error: ErrorInfo, attempt: int) -> str:
    """Return an error as JSON; the script adds when."""
    return add_error(None, error, 0, attempt)[1:-1].decode()
