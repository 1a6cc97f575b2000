"""Outcomes: what runs meant, grouped by queue and as the exchange script takes it.

Successes are many and alike: their ids and tokens are arguments of their own, and their runs one text. Other ends are a list
each. A collector's run has an end for each of its lanes. This is done for every job: what can be made for many at once is.

Enters: `Settled`.  Leaves: `QueueOutcomes` for each queue.
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

__all__ = ["Grouped", "QueueOutcomes", "error_text", "group_by_queue"]

_to_json = msgspec.json.Encoder().encode
_to_lines = msgspec.json.Encoder().encode_lines
_to_msgpack = msgspec.msgpack.Encoder().encode


class QueueOutcomes(Struct):
    """What is to be settled in one queue."""

    ids: list[str] = field(default_factory=list[str])  #: of successes: jobs, or lanes of a collector
    tokens: list[str] = field(default_factory=list[str])
    lanes: list[str | None] = field(default_factory=list[str | None])
    runs: list[Run] = field(default_factory=list[Run])
    others: list[Any] = field(default_factory=list[Any])  #: a list each, see `_other`
    results: list[Any] = field(default_factory=list[Any])  #: flat: id, milliseconds, microseconds, value
    done_at: list[int] = field(default_factory=list[int])  #: which of all that is settled the successes are
    others_at: list[int] = field(default_factory=list[int])  #: and the others
    #: So many may become ready in this queue because these have ended: the next in their lanes, and themselves again.
    followers: int = 0

    def arguments(self) -> tuple[str | bytes, ...]:
        """Return all of it as the script takes it."""
        ids, lanes, number = self.ids, self.lanes, len(self.ids)
        named = () if lanes.count(None) == number else ["" if lane is None else f":{lane}" for lane in lanes]
        return (
            _to_msgpack(self.others) if self.others else b"",
            _to_msgpack(self.results) if self.results else b"",
            str(number),
            _to_lines(self.runs).replace(b"\n", b",\n")[:-2] if number else b"",
            *ids, *self.tokens, *named,
        )  # fmt: skip


class Grouped(Struct, frozen=True):
    """All that is to be settled."""

    by_queue: dict[str, QueueOutcomes]
    ids: list[str]  #: of all units, in order


def group_by_queue(settled: Sequence[Settled]) -> Grouped:
    """Return outcomes by the queues of their claims."""
    by_queue: dict[str, QueueOutcomes] = {}
    ids: list[str] = []
    for item in settled:
        claim = item.claim
        outcomes = by_queue.get(claim.job.queue)
        if outcomes is None:
            outcomes = by_queue[claim.job.queue] = QueueOutcomes()
        if claim.lanes:
            for lane, outcome in _outcomes(item):
                _add(outcomes, ids, item, outcome, lane)
        else:
            _add(outcomes, ids, item, item.outcome, None)
    return Grouped(by_queue, ids)


def _outcomes(item: Settled) -> list[tuple[LaneClaim, Outcome]]:
    """Return a run's lanes, each with its outcome; one outcome alone is meant for all."""
    given = item.outcome
    outcomes = given.outcomes if isinstance(given, Each) else (given,) * len(item.claim.lanes)
    return list(zip(item.claim.lanes, outcomes, strict=True))


def _add(outcomes: QueueOutcomes, ids: list[str], item: Settled, outcome: Outcome | Each, lane: LaneClaim | None) -> None:
    claim = item.claim
    job = claim.job
    id_, name, enqueued = (job.id, job.lane, claim.enqueued) if lane is None else (lane.id, lane.lane, lane.enqueued)
    if type(outcome) is Done:
        outcomes.runs.append(Run(id_, job.task, job.queue, name, enqueued, item.started, item.finished, "done"))
        outcomes.ids.append(id_)
        outcomes.tokens.append(str(claim.token))
        outcomes.lanes.append(name)
        if name is not None:
            outcomes.followers += 1
        outcomes.done_at.append(len(ids))
        if outcome.result is not None and outcome.keep > 0:
            outcomes.results += (id_, -(-outcome.keep // 1000), outcome.keep, outcome.result.decode())
    else:
        run = Run(id_, job.task, job.queue, name, enqueued, item.started, item.finished, "")
        outcomes.others.append(_other(id_, claim, outcome, run, lane))
        outcomes.others_at.append(len(ids))
        outcomes.followers += 1
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
