"""Judges what `postgres_stress.py` noted: runs of a lane overlap, overtake, are lost, are ghosts, or strand.

A job overtakes another one of its lane if its run began first, though the other's push, or its commit, had been answered before
its own push began. A run that was cut ends when its worker was killed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Verdict", "judge"]

#: How many mistakes of a kind are told.
TOLD = 3


class Run(NamedTuple):
    """A run of a unit, nanoseconds."""

    start: int
    end: int
    id: str
    token: int


class Pushed(NamedTuple):
    """A job whose push was answered, or its commit."""

    lane: tuple[str, str] | None
    begun: int
    answered: int
    in_order: bool = True  #: False: it was delayed, or got another place
    must_start: bool = True  #: False: it may have expired, or was cancelled


@dataclass
class Verdict:
    """What was counted, and what is wrong."""

    figures: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def wrong(self, kind: str, *facts: object) -> None:
        self.mistakes[kind] += 1
        if self.mistakes[kind] <= TOLD:
            self.told.append(f"{kind}: {' '.join(map(str, facts))}")

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {what}" for what, number in self.figures.items())
        return f"{counted}; mistakes: {dict(self.mistakes) or 'none'}" + "".join(f"\n  {line}" for line in self.told)


def judge(folder: Path) -> Verdict:
    """Read all notes, and judge."""
    verdict = Verdict()
    director = _read(folder / "director")
    killed = {name: at for what, *rest in director if what == "killed" for name, at in [rest]}
    pushed, undone, collected = _pushes(folder, verdict)
    lanes, started, payloads = _runs(folder, killed, verdict)
    _judge_director(director, verdict)
    for lane, runs in lanes.items():
        _judge_overlaps(lane, runs, verdict)
    for lane in lanes:
        _judge_order([(job, started[id_], id_) for id_, job in pushed.items() if job.lane == lane and id_ in started], verdict)
    for id_, job in pushed.items():
        if id_ not in started and job.must_start:
            verdict.wrong("lost", id_, job)
    for body in collected - payloads:
        verdict.wrong("lost payload", body)
    for ghost in undone & (started.keys() | payloads):
        verdict.wrong("ghost", ghost)
    return verdict


def _read(path: Path) -> list[list[Any]]:
    """Return the notes of a process; who was killed may have cut its last line."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def _pushes(folder: Path, verdict: Verdict) -> tuple[dict[str, Pushed], set[str], set[str]]:
    """Return the jobs that were pushed, what was rolled back, and the payloads that were pushed."""
    pushed: dict[str, Pushed] = {}
    undone: set[str] = set()
    collected: set[str] = set()
    touched: set[str] = set()
    for path in folder.glob("producer-*"):
        for what, *rest in _read(path):
            if what != "tried":
                verdict.figures[what] += 1
            if what == "pushed":
                id_, queue, lane, begun, answered, delayed, expires = rest
                pushed[id_] = Pushed((queue, lane) if lane else None, begun, answered, not delayed, not expires)
            elif what in ("undone", "collected", "touched"):
                {"undone": undone, "collected": collected, "touched": touched}[what].add(rest[0])
    free = {id_: job._replace(in_order=False, must_start=False) for id_, job in pushed.items() if id_ in touched}
    return {**pushed, **free}, undone, collected


def _runs(
    folder: Path, killed: dict[str, int], verdict: Verdict
) -> tuple[dict[tuple[str, str], list[Run]], dict[str, int], set[str]]:
    """Return the runs of each lane, when each job started first, and the payloads that were in a run."""
    lanes: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    started: dict[str, int] = {}
    payloads: set[str] = set()
    for path in folder.glob("worker-*"):
        begun: dict[tuple[str, int], tuple[int, str, str | None]] = {}
        for what, *rest in _read(path):
            if what != "end":
                verdict.figures["runs" if what == "start" else what] += len(rest[0]) if what == "refused" else 1
            if what == "start":
                at, id_, queue, lane, token, bodies = rest
                begun[id_, token] = at, queue, lane
                started[id_] = min(at, started.get(id_, at))
                payloads.update(bodies)
            elif what == "end":
                at, id_, token = rest
                since, queue, lane = begun.pop((id_, token))
                if lane is not None:
                    lanes[queue, lane].append(Run(since, at, id_, token))
        name = path.name.removeprefix("worker-")
        for (id_, token), (since, queue, lane) in begun.items():
            if lane is not None:
                lanes[queue, lane].append(Run(since, killed[name], id_, token))
    return lanes, started, payloads


def _judge_director(notes: list[list[Any]], verdict: Verdict) -> None:
    for what, *rest in notes:
        if what == "looked":
            verdict.figures["looks"] += 1
            wrong, twice = rest
            if wrong:
                verdict.wrong("miscounted", wrong)
            if twice:
                verdict.wrong("two holders", twice)
        elif what == "left":
            number, rows, orphans = rest
            if number:
                verdict.wrong("stranded", number, rows)
            if orphans:
                verdict.wrong("payloads without a lane", orphans)
        elif what == "deadlocks":
            if rest[0]:
                verdict.wrong("deadlocks", rest[0])
        else:
            verdict.figures[what] += rest[0] if what == "terminated" else 1


def _judge_overlaps(lane: tuple[str, str], runs: list[Run], verdict: Verdict) -> None:
    runs.sort()
    longest = runs[0]
    for run in runs[1:]:
        if run.start < longest.end:
            verdict.wrong("overlap", lane, longest, run)
        longest = max(longest, run, key=lambda one: one.end)


def _judge_order(jobs: list[tuple[Pushed, int, str]], verdict: Verdict) -> None:
    """Compare each job with those that were answered before its own push began: the last start among them is enough."""
    jobs = [job for job in jobs if job[0].in_order]
    answered = sorted(jobs, key=lambda job: job[0].answered)
    verdict.figures["places compared"] += len(jobs)
    at, last, before = 0, -1, ""
    for job, started, id_ in sorted(jobs, key=lambda job: job[0].begun):
        while at < len(answered) and answered[at][0].answered < job.begun:
            last, before = max((last, before), (answered[at][1], answered[at][2]))
            at += 1
        if last > started:
            verdict.wrong("overtaking", job.lane, before, "started after", id_)
