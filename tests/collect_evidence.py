"""Evidence of collectors: what their runs wrote down outside the store, and whether the table of lanes explains it.

Every run appends one record per lane when it begins (with the payloads it was given) and one per lane when it ends (with what it
said about that lane). Who enqueues notes each payload with the times just before and after. All clocks are CLOCK_MONOTONIC.

`check` walks each lane with a model of the table in DESIGN section 7. Where the evidence leaves open what the store saw first (an
enqueue that overlaps a claim, a run that ended as its worker was killed), the model follows both ways. It must be on one of them
at every claim: the same payloads in the same order, with the same scores, as the same attempt, and not before it is due. At the
end nothing may wait, and just those may be dead that the model saw die. So whatever is lost, swallowed, handed over twice or out
of order leaves no way.

Enters: records, enqueues, faults, the dead.  Leaves: `Findings`.  Called by: `collect_jobs` (to write), `test_fleet_collect`.
"""

# The steps of `fleet_evidence.check` that hold for collectors too are called one by one.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fleet_evidence import (
    Fault,
    Mark,
    Repeat,
    Run,
    Verdict,
    _after_the_end,
    _ends,
    _idle_faults,
    _overlaps,
    _pair,
    _stale,
    _survived,
    _worker,
)

__all__ = ["RECORD", "SETTLED", "Findings", "Given", "Record", "Rules", "Sent", "append", "check", "key", "read"]

#: Bytes of a record. It divides a page: a process that is killed while it writes leaves whole records.
RECORD = 256
#: What ended so long before a kill was settled by then, nanoseconds. Measured: at most 40 ms on a busy machine.
SETTLED = 1_000_000_000
#: The store's clock and ours may differ by so much within a second.
DRIFT = 2_000_000


class Rules(NamedTuple):
    """How a collector is declared, as far as the model must know. Times are nanoseconds."""

    max_lanes: int
    max_payloads: int  #: 0: all
    retries: int
    backoff: int
    snooze: int


class Sent(NamedTuple):
    """A payload that was enqueued and accepted. One producer sends them all, so their order is the order of arrival."""

    key: str
    body: str
    score: float | None  #: None: the store's own, which grows; a collector has either kind
    called: int  #: just before
    returned: int  #: just after
    run_after: int = 0  #: nanoseconds


class Given(NamedTuple):
    """A payload as a run was given it."""

    body: str
    score: float


class Record(NamedTuple):
    """One lane's record of one run. The mark's id is the lane's key."""

    mark: Mark
    said: str = "-"  #: of an end: `done`, `failed`, `snoozed` or `cancelled`; of a start `held`: it waits
    given: tuple[Given, ...] = ()  #: of a start


@dataclass(frozen=True, slots=True)
class LaneRun:
    """A run of a lane."""

    run: Run
    given: tuple[Given, ...]
    said: str  #: `-` if it never ended
    until: int  #: when it ended, or died
    faults: tuple[Fault, ...]  #: what may have kept it from being settled

    def __str__(self) -> str:
        mark = self.run.start
        alone = f", alone, for worker {mark.worker}" if mark.pid != mark.worker else ""
        return f"the run of {mark.id} with token {mark.token} in process {mark.pid}{alone}"

    @property
    def begin(self) -> int:
        return self.run.start.at

    @property
    def bodies(self) -> list[str]:
        return [one.body for one in self.given]


@dataclass(slots=True)
class Findings(Verdict):
    """What the evidence says."""

    during: int = 0  #: payloads that came while an equal one was in a run of its lane
    done: tuple[int, int] = (0, 0)  #: payloads of runs that were settled as done: at least, at most
    cut: int = 0  #: runs of lanes that never ended
    died: int = 0  #: payloads that are dead
    widest: int = 0  #: how many ways the model had to follow at once
    tokens: set[int] = field(default_factory=set[int])  #: the runs


def key(collector: str, lane: str) -> str:
    """Return what a collector's lane is called here."""
    return f"{collector}/{lane}"


# -- records -----------------------------------------------------------------------------------------------------


def append(path: str, what: str, token: int, lanes: Iterable[tuple[str, int, str, Sequence[Given]]]) -> None:
    """Add a record for each (key, attempt, what it said, payloads) of a run to a file, with one write."""
    who = (os.getpid(), _worker(os.getpid()), os.getppid(), os.getsid(0))
    now, lines = time.monotonic_ns(), b""
    for name, attempt, said, given in lanes:
        mark = Mark(what, name, name.partition("/")[2], 0, token, attempt, *who, now)
        payloads = ",".join(f"{one.body}:{one.score!r}" for one in given) or "-"
        lines += " ".join(map(str, (*mark, said, payloads))).encode().ljust(RECORD - 1) + b"\n"
    assert len(lines) % RECORD == 0, lines
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        assert os.write(file, lines) == len(lines)
    finally:
        os.close(file)


def read(path: Path) -> list[Record]:
    """Return the whole records of a file."""
    data = path.read_bytes() if path.exists() else b""
    return [_record(data[at : at + RECORD]) for at in range(0, len(data) - RECORD + 1, RECORD)]


def _record(line: bytes) -> Record:
    what, id_, lane, *numbers, said, payloads = line.decode().split()
    given = [one.rpartition(":") for one in payloads.split(",")] if payloads != "-" else []
    return Record(Mark(what, id_, lane, *map(int, numbers)), said, tuple(Given(body, float(score)) for body, _, score in given))


# -- judging -----------------------------------------------------------------------------------------------------


def check(
    sent: Sequence[Sent], records: Sequence[Record], faults: Sequence[Fault], dead: Iterable[tuple[str, str]],
    rules: Mapping[str, Rules], slots: int,
) -> Findings:  # fmt: skip
    """Judge what ran, given what was enqueued, the faults, the dead as (key, body), and the slots of each process."""
    marks = [record.mark for record in records]
    runs, strange = _pair(marks, faults)
    found = Findings(runs, strange)
    mistakes = found.mistakes
    mistakes += _after_the_end(marks, faults)
    mistakes += _idle_faults(marks, faults)
    by_lane = _lanes(records, runs, _ends(runs, marks, faults, mistakes), faults)
    mistakes += _together([run for lane in by_lane.values() for run in lane], rules)

    sent_to: dict[str, list[tuple[int, Sent]]] = defaultdict(list)
    for arrival, one in enumerate(sent):
        sent_to[one.key].append((arrival, one))
    dead_in: dict[str, set[str]] = defaultdict(set)
    for name, body in dead:
        dead_in[name].add(body)
    for name in sorted({*sent_to, *by_lane, *dead_in}):
        lane = by_lane.get(name, [])
        mistakes += _overlaps([run.run for run in lane], {run.run: run.until for run in lane}, faults)
        mistakes += _stale([run.run for run in lane])
        model = Model(name, rules[name.partition("/")[0]], sent_to[name])
        mistakes += model.walk(lane, frozenset(dead_in[name]))
        _note(found, lane, model)
    mistakes += _survived(found.repeats)
    mistakes += _too_many(found.repeats, slots)
    found.died = sum(map(len, dead_in.values()))
    return found


def _lanes(
    records: Iterable[Record], runs: Iterable[Run], ends: Mapping[Run, int], faults: Iterable[Fault]
) -> dict[str, list[LaneRun]]:
    """Return the runs of each lane in the order of their beginning."""
    given = {(r.mark.id, r.mark.token): r.given for r in reversed(_of(records, "start"))}
    said = {(r.mark.id, r.mark.token): r.said for r in _of(records, "end")}
    hits: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        for pid in fault.pids:
            hits[pid].append(fault)
    by_lane: dict[str, list[LaneRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start.at):
        mark = run.start
        near = {fault for pid in (mark.pid, mark.worker, mark.parent, mark.fleet) for fault in hits.get(pid, ())}
        unsettled = [fault for fault in near if fault.hit(run) and (run.end is None or fault.since <= run.end.at + SETTLED)]
        reasons = sorted(unsettled, key=lambda fault: fault.since)
        name = (mark.id, mark.token)
        verdict = said.get(name, "-") if run.end is not None else "-"
        by_lane[mark.id].append(LaneRun(run, given[name], verdict, ends[run], tuple(reasons)))
    return by_lane


def _of(records: Iterable[Record], what: str) -> list[Record]:
    return [record for record in records if record.mark.what == what]


def _together(runs: Iterable[LaneRun], rules: Mapping[str, Rules]) -> Iterator[str]:
    """What has one token is one run: of one collector, in one process, with not too many lanes; an isolated one has one."""
    by_token: dict[int, list[Mark]] = defaultdict(list)
    for run in runs:
        by_token[run.run.start.token].append(run.run.start)
    for token, marks in by_token.items():
        collectors = {mark.id.partition("/")[0] for mark in marks}
        if len(collectors) > 1 or len({mark.pid for mark in marks}) > 1:
            yield f"token {token} was given to several runs: {sorted(mark.id for mark in marks)}"
        elif len(marks) > rules[min(collectors)].max_lanes:
            yield f"the run with token {token} had {len(marks)} lanes"
        elif len(marks) > 1 and marks[0].pid != marks[0].worker:
            yield f"the run with token {token} was a suspect's, and had {len(marks)} lanes"


def _note(found: Findings, lane: Sequence[LaneRun], model: Model) -> None:
    """Count what a lane showed."""
    found.repeats += model.repeats
    found.widest = max(found.widest, model.widest)
    again = {repeat.run for repeat in model.repeats}
    done = [run for run in lane if run.said == "done"]
    least, most = found.done
    found.done = (
        least + sum(len(run.given) for run in done if not run.faults),
        most + sum(len(run.given) for run in done if run.run not in again),
    )
    found.cut += sum(run.said == "-" for run in lane)
    found.tokens.update(run.run.start.token for run in lane)
    begins = [run.begin for run in lane]
    for _, one in model.sent:
        before = bisect_left(begins, one.called) - 1
        if before >= 0 and one.returned < lane[before].until and one.body in lane[before].bodies:
            found.during += 1


def _too_many(repeats: Iterable[Repeat], slots: int) -> Iterator[str]:
    """At most as many runs as a worker has slots had begun and were not settled."""
    tokens: dict[tuple[Fault, int], set[int]] = defaultdict(set)
    for repeat in repeats:
        tokens[repeat.fault, repeat.run.start.worker].add(repeat.run.start.token)
    for (fault, worker), numbers in tokens.items():
        if len(numbers) > slots:
            yield f"{len(numbers)} runs of worker {worker} were repeated after the kill of {fault.role}, and it had {slots} slots"


# -- the model of one lane ---------------------------------------------------------------------------------------


class Waits(NamedTuple):
    """A payload in a lane: the fields are in the order of handing over."""

    score: float
    arrival: int
    body: str


class Way(NamedTuple):
    """How a lane may stand, as far as the evidence tells."""

    taken: int = 0  #: so many of the lane's enqueues has the store seen
    attempts: int = 0
    due: int | None = None  #: not before this; None: the first payload says it
    waiting: tuple[Waits, ...] = ()
    dead: frozenset[str] = frozenset()
    again: bool = False  #: the run before was not settled: its payloads came back


def _early(way: Way, run: LaneRun) -> int:
    """Return by how much a run came before its time."""
    return (way.due or 0) - DRIFT - run.begin


def _wrongly_timed(run: LaneRun, ways: Sequence[Way]) -> str:
    attempt, right = run.run.start.attempt, sorted({way.attempts + 1 for way in ways})
    if attempt not in right:
        return f"is attempt {attempt}, and should be {' or '.join(map(str, right))}"
    return f"began {min(_early(way, run) + DRIFT for way in ways) / 1e6:.3f} ms too soon"


def merged(*parts: Iterable[Waits]) -> tuple[Waits, ...]:
    """Merge: equal payloads are one, with the larger score and the earlier arrival."""
    kept: dict[str, Waits] = {}
    for one in (one for part in parts for one in part):
        known = kept.get(one.body, one)
        kept[one.body] = Waits(max(one.score, known.score), min(one.arrival, known.arrival), one.body)
    return tuple(sorted(kept.values()))


class Model:
    """A lane of the table in DESIGN section 7, on all ways that the evidence leaves open."""

    def __init__(self, name: str, rule: Rules, sent: Sequence[tuple[int, Sent]]) -> None:
        self.name = name
        self.sent = sent
        self.repeats: list[Repeat] = []
        self.widest = 1
        self._rule = rule
        self._ways = {Way()}
        self._called = [one.called for _, one in sent]
        self._returned = [one.returned for _, one in sent]
        self._own_scores = any(one.score is None for _, one in sent)

    def walk(self, lane: Sequence[LaneRun], dead: frozenset[str]) -> Iterator[str]:
        """Follow a lane through its runs to its end; the first step that no way explains is a mistake, and ends the walk."""
        before: LaneRun | None = None
        for run in lane:
            self._arrive(run.begin, 0 if before is None else min(before.until, run.begin))
            if before is not None and not any(fault.since <= run.begin for fault in before.faults):
                self._ways = {way for way in self._ways if not way.again}
            if not self._ways:
                yield f"{run} began before {before} was cut"
                return
            ways = {way for way in self._ways if self._explains(way, run)}
            if not ways:
                yield self._why_not(run, before)
                return
            if before is not None and before.faults and all(way.again for way in ways):
                self.repeats.append(Repeat(before.faults[0], before.run, run.run))
            self._ways = {after for way in ways for after in self._after(way, run)}
            self.widest = max(self.widest, len(self._ways))
            before = run
        self._arrive(2**63, 2**63)
        yield from self._at_the_end(dead)

    # -- steps -------------------------------------------------------------------------------------------

    def _arrive(self, may: int, must: int) -> None:
        """Let the store see enqueues: all that had returned by one time, any that were called before the other."""
        least, most = bisect_left(self._returned, must), bisect_left(self._called, may)
        ways: set[Way] = set()
        for way in self._ways:
            for taken in range(way.taken, max(most, way.taken) + 1):
                if taken > way.taken:
                    way = self._one_more(way)  # noqa: PLW2901
                if taken >= least:
                    ways.add(way)
        self._ways = ways

    def _one_more(self, way: Way) -> Way:
        arrival, one = self.sent[way.taken]
        waits = Waits(arrival if one.score is None else one.score, arrival, one.body)
        due = one.called + one.run_after if way.due is None else way.due
        return way._replace(taken=way.taken + 1, due=due, waiting=merged(way.waiting, [waits]))

    def _explains(self, way: Way, run: LaneRun) -> bool:
        """Say whether a run was given what it would be on this way, and when."""
        return self._fits(way, run) and run.run.start.attempt == way.attempts + 1 and _early(way, run) <= 0

    def _fits(self, way: Way, run: LaneRun) -> bool:
        return bool(way.waiting) and self._expected(way) == self._seen(run)

    def _expected(self, way: Way) -> list[tuple[str, float]]:
        return [(one.body, 0.0 if self._own_scores else one.score) for one in self._oldest(way)]

    def _seen(self, run: LaneRun) -> list[tuple[str, float]]:
        return [(one.body, 0.0 if self._own_scores else one.score) for one in run.given]

    def _oldest(self, way: Way) -> tuple[Waits, ...]:
        return way.waiting[: self._rule.max_payloads or None]

    def _after(self, way: Way, run: LaneRun) -> Iterator[Way]:
        """Say how the lane may stand after a run that it explains; what gathered meanwhile arrives before the next."""
        if run.said != "-":
            yield self._settled(way, run)
        if run.said == "-" or run.faults:
            yield way._replace(due=0, again=True)  # it came back, was due already, and nothing counted

    def _settled(self, way: Way, run: LaneRun) -> Way:
        way = way._replace(again=False)
        running = self._oldest(way)
        rest = way.waiting[len(running) :]
        if run.said in ("done", "cancelled"):
            return way._replace(waiting=rest, attempts=0, due=0 if rest else None)
        if run.said == "snoozed":
            return way._replace(due=run.until + self._rule.snooze)
        if way.attempts < self._rule.retries:
            return way._replace(attempts=way.attempts + 1, due=run.until + self._rule.backoff)
        first = min(running, key=lambda one: one.arrival)
        others = [one for one in running if one is not first]
        return way._replace(waiting=merged(others, rest), attempts=0, due=0, dead=way.dead | {first.body})

    # -- mistakes ----------------------------------------------------------------------------------------

    def _why_not(self, run: LaneRun, before: LaneRun | None) -> str:
        """Say what is wrong with a run that no way explains."""
        bodies, known = run.bodies, {one.body for _, one in self.sent if one.called < run.begin}
        if strange := [body for body in bodies if body not in known]:
            return f"{run} was given {strange}, which nobody had enqueued"
        if twice := [body for body, number in Counter(bodies).items() if number > 1]:
            return f"{run} was given {twice} more than once"
        if any(one.score > other.score for one, other in pairwise(run.given)):
            return f"{run} was given {bodies}, not in the order of their scores: {[one.score for one in run.given]}"
        if fitting := [way for way in self._ways if self._fits(way, run)]:
            return f"{run} {_wrongly_timed(run, fitting)}"
        last = "" if before is None else f"; {before}, {before.said}, had {before.bodies}"
        return f"{run} {self._wrongly_given(run)}{last}"

    def _wrongly_given(self, run: LaneRun) -> str:
        expected = [self._expected(way) for way in sorted(self._ways, key=lambda way: -way.taken)]
        waiting = [{body for body, _ in one} for one in expected]
        if extra := [body for body in run.bodies if not any(body in one for one in waiting)]:
            return f"was given {extra} again, and no enqueue and no fault explains it"
        if absent := sorted(waiting[0].intersection(*waiting).difference(run.bodies)):
            return f"was not given {absent}, which waited; it had {run.bodies}"
        shown = " or ".join(map(str, expected[:3]))
        return f"was given {list(map(tuple, run.given))}, and should have had {shown}"

    def _at_the_end(self, dead: frozenset[str]) -> Iterator[str]:
        """All is handled or dead."""
        idle = [way for way in self._ways if not way.waiting]
        if not idle:
            first, *others = [{one.body for one in way.waiting} for way in self._ways]
            lost = first.intersection(*others)
            yield f"{self.name} lost {sorted(lost)}: neither handled nor dead"
        elif not any(way.dead == dead for way in idle):
            nearest = min(idle, key=lambda way: len(way.dead ^ dead))
            if extra := sorted(dead - nearest.dead):
                yield f"{self.name} has {extra} among the dead, and no run explains it"
            if absent := sorted(nearest.dead - dead):
                yield f"{self.name} lost {absent}, which should be among the dead"
