"""Evidence: what runs wrote down about themselves outside the store, and what it proves.

Every run appends one record when it starts and one when it ends. The harness notes every fault: who was killed or frozen, and
when. All times are CLOCK_MONOTONIC, which is the same for all processes of a host. `check` reads both and says what went wrong.

A start is noted after the run began and an end before it ended, so two runs that seem to overlap did. A run that never noted its
end lasted until its process died: at least until the kill, and until the last record of its process.

Enters: records and faults.  Leaves: a `Verdict`.  Called by: `fleet_jobs` (to write), `fleetbench` (to judge).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

__all__ = ["RECORD", "Fault", "Job", "Mark", "Repeat", "Run", "Verdict", "append", "check", "read"]

#: Bytes of a record. It divides a page: a process that is killed while it writes leaves the whole record or nothing.
RECORD = 128
SECOND = 1_000_000_000
#: What ended so long before a fault was settled by then, and no fault explains that it runs again.
SETTLED = 5 * SECOND


class Mark(NamedTuple):
    """One record."""

    what: str  #: `start` or `end`
    id: str
    lane: str
    seq: int  #: the job's number in its lane, from 0
    token: int
    attempt: int
    pid: int
    worker: int  #: whose claim it runs: the process itself, or who asked for this isolated run
    parent: int  #: the process's parent when it wrote this
    fleet: int  #: its session: the pid of the fleet's supervisor
    at: int


class Job(NamedTuple):
    """What was enqueued and accepted."""

    lane: str
    seq: int


@dataclass(frozen=True, slots=True)
class Run:
    """A start, and the end that belongs to it."""

    start: Mark
    end: Mark | None

    def __str__(self) -> str:
        mark = self.start
        return f"job {mark.id} (lane {mark.lane}, number {mark.seq}) with token {mark.token} in process {mark.pid}"


@dataclass(frozen=True, slots=True)
class Fault:
    """What the harness did to processes."""

    what: str  #: `kill`, `freeze`, or `stop`: a shutdown that left no time to end
    role: str  #: who was meant
    pids: frozenset[int]  #: who was hit; children of a killed process die with it
    since: int  #: just before it was done
    done: int  #: all of them were seen dead, or stopped
    over: int = 0  #: they were woken again
    fleet: int = 0  #: their session, as their records have it; 0: not known. Others may get their pids later

    def hit(self, run: Run) -> bool:
        """Say whether a run's claim may have been unsettled when this happened to its process."""
        mark = run.start
        if self.pids.isdisjoint((mark.pid, mark.worker, mark.parent, mark.fleet)):
            return False
        # An isolated run outlives its worker for a moment: the supervisor ends it.
        if mark.at > self.done + (SECOND if mark.worker in self.pids and mark.pid not in self.pids else 0):
            return False
        return run.end is None or run.end.at >= self.since - SETTLED

    def froze(self, run: Run) -> bool:
        """Say whether a run was in the middle when its process was frozen."""
        return self.what == "freeze" and self.hit(run) and (run.end is None or run.end.at >= self.over)

    def excuses(self, other: Run, run: Run) -> bool:
        """Say whether this is why a run could begin in its lane while another one went on."""
        return self.froze(other) and self.since <= run.start.at <= self.over


@dataclass(frozen=True, slots=True)
class Repeat:
    """A job that ran again, and why."""

    fault: Fault
    run: Run
    again: Run

    @property
    def seconds(self) -> float:
        """From the fault to the next start."""
        return (self.again.start.at - self.fault.since) / SECOND


@dataclass(slots=True)
class Verdict:
    """What the evidence says."""

    runs: list[Run]
    mistakes: list[str] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)


def append(path: str, what: str, id_: str, lane: str, seq: int, token: int, attempt: int) -> None:
    """Add a record of this process to a file, with one write."""
    who = (os.getpid(), _worker(os.getpid()), os.getppid(), os.getsid(0))
    mark = Mark(what, id_, lane, seq, token, attempt, *who, time.monotonic_ns())
    line = " ".join(map(str, mark)).encode().ljust(RECORD - 1) + b"\n"
    assert len(line) == RECORD, line
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        assert os.write(file, line) == RECORD
    finally:
        os.close(file)


@cache
def _worker(pid: int) -> int:
    """Return the worker that this process runs jobs for: itself, unless it is an isolated run.

    Such a one has a socket to its worker, and the kernel knows who made that.
    """
    if not Path("/proc/self/cmdline").read_bytes().startswith(b"laneway: isolated"):
        return pid
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as end:
            maker: int = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if maker not in (0, pid, os.getppid()):
                return maker
    raise AssertionError("an isolated run has no socket that its worker made")


def read(path: Path, offset: int = 0) -> list[Mark]:
    """Return the whole records of a file from an offset on."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    return [_mark(data[at : at + RECORD]) for at in range(0, len(data) - RECORD + 1, RECORD)]


def _mark(line: bytes) -> Mark:
    what, id_, lane, *numbers = line.decode().split()
    return Mark(what, id_, lane, *map(int, numbers))


# -- judging -----------------------------------------------------------------------------------------------------


def check(jobs: Mapping[str, Job], marks: Sequence[Mark], faults: Sequence[Fault] = (), slots: int = 1) -> Verdict:
    """Judge what ran, given the accepted jobs by id, the faults, and the slots of each process."""
    runs, strange = _pair(marks, faults)
    verdict = Verdict(runs, strange)
    by_id: dict[str, list[Run]] = defaultdict(list)
    by_lane: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start.token):
        by_id[run.start.id].append(run)
    for run in sorted(runs, key=lambda run: run.start.at):
        by_lane[run.start.lane].append(run)

    mistakes = verdict.mistakes
    mistakes += _strangers(jobs, runs)
    mistakes += _lost(jobs, by_id)
    mistakes += _after_the_end(marks, faults)
    ends = _ends(runs, marks, faults, mistakes)
    for lane in by_lane.values():
        mistakes += _overlaps(lane, ends, faults)
        mistakes += _stale(lane)
        mistakes += _overtaken(lane, by_id)
    for of_job in by_id.values():
        verdict.repeats += _repeats(of_job, faults, mistakes)
        mistakes += _charged(of_job)
    mistakes += _survived(verdict.repeats)
    mistakes += _too_many(verdict.repeats, slots)
    mistakes += _idle_faults(marks, faults)
    return verdict


def _pair(marks: Iterable[Mark], faults: Sequence[Fault]) -> tuple[list[Run], list[str]]:
    """Join starts and ends: a run is known by its job and token. An isolated run may begin again within its claim."""
    starts: dict[tuple[str, int], Mark] = {}
    ends: dict[tuple[str, int], Mark] = {}
    strange: list[str] = []
    for mark in marks:
        key = (mark.id, mark.token)
        before = starts if mark.what == "start" else ends
        if mark.what == "start" and key in starts and key not in ends and _begins_again(starts[key], mark, faults):
            starts[key] = mark
        elif key in before:
            strange.append(f"two {mark.what}s of job {mark.id} with token {mark.token}: one claim ran twice")
        elif mark.what == "end" and (key not in starts or starts[key].pid != mark.pid):
            strange.append(f"job {mark.id} with token {mark.token} ended in process {mark.pid}, where it had not started")
        else:
            before[key] = mark
    return [Run(start, ends.get(key)) for key, start in starts.items()], strange


def _begins_again(first: Mark, second: Mark, faults: Sequence[Fault]) -> bool:
    """Say whether an isolated run's process was killed, and its worker, which went on, has started another one."""
    isolated = first.worker == second.worker and first.worker not in (first.pid, second.pid) and first.pid != second.pid
    return isolated and any(fault.what == "kill" and first.pid in fault.pids and fault.since <= second.at for fault in faults)


def _strangers(jobs: Mapping[str, Job], runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        mark = run.start
        if jobs.get(mark.id) != (mark.lane, mark.seq):
            yield f"{run}: no such job was accepted"


def _lost(jobs: Mapping[str, Job], by_id: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    for id_, job in jobs.items():
        runs = by_id.get(id_, ())
        if not any(run.end for run in runs):
            yield f"job {id_} (lane {job.lane}, number {job.seq}) is lost: {len(runs)} runs, none ended"


def _after_the_end(marks: Iterable[Mark], faults: Iterable[Fault]) -> Iterator[str]:
    """A process that was seen dead writes no more; one that was seen stopped does not until it is woken."""
    when: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        for pid in fault.pids:
            when[pid].append(fault)
    for mark in marks:
        for fault in when[mark.pid]:
            if fault.fleet in {0, mark.fleet} and fault.done < mark.at and (fault.what != "freeze" or mark.at < fault.over):
                yield f"process {mark.pid} wrote the {mark.what} of job {mark.id} after its {fault.what}"


def _ends(runs: Iterable[Run], marks: Iterable[Mark], faults: Sequence[Fault], mistakes: list[str]) -> dict[Run, int]:
    """Say until when each run lasted."""
    alive: dict[int, int] = {}
    for mark in marks:
        alive[mark.pid] = max(mark.at, alive.get(mark.pid, 0))
    ends: dict[Run, int] = {}
    for run in runs:
        if run.end is not None:
            ends[run] = run.end.at
            continue
        kills = [fault.since for fault in faults if fault.what != "freeze" and fault.hit(run)]
        if kills:
            ends[run] = max(min(kills), alive[run.start.pid])
        else:
            mistakes.append(f"{run} never ended, and nobody killed its process")
            ends[run] = run.start.at  # nothing is known of it after that
    return ends


def _overlaps(lane: Sequence[Run], ends: Mapping[Run, int], faults: Sequence[Fault]) -> Iterator[str]:
    """Runs of a lane are one at a time, but for those that were frozen in the middle: others go on without them."""
    going: list[Run] = []
    for run in lane:
        going = [other for other in going if ends[other] > run.start.at]
        for other in going:
            if not any(fault.excuses(other, run) for fault in faults):
                yield f"{run} began while {other} ran, {(ends[other] - run.start.at) / 1e6:.3f} ms before its end"
        going.append(run)


def _stale(lane: Sequence[Run]) -> Iterator[str]:
    """Tokens grow: a run with a lesser one than the lane has seen began with a claim that others had taken over."""
    newest: Run | None = None
    for run in lane:
        if newest is not None and run.start.token < newest.start.token:
            yield f"{run} began with a stale claim: {newest} had begun {(run.start.at - newest.start.at) / 1e6:.3f} ms before"
        else:
            newest = run


def _overtaken(lane: Sequence[Run], by_id: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """A job begins when the last run of the one before it has ended."""
    first: dict[int, Run] = {}
    for run in lane:
        first.setdefault(run.start.seq, run)
    for seq, run in first.items():
        if not seq:
            continue
        if seq - 1 not in first:
            yield f"{run} overtook number {seq - 1}, which had not begun"
            continue
        before = by_id[first[seq - 1].start.id][-1]  # by token: the one whose outcome counted
        if before.end is None or before.end.at > run.start.at:
            yield f"{run} overtook {before}, which had not ended"


def _repeats(runs: Sequence[Run], faults: Sequence[Fault], mistakes: list[str]) -> Iterator[Repeat]:
    """Every run but the last needs a fault that explains why it was not enough."""
    for run, again in pairwise(runs):
        reasons = [fault for fault in faults if fault.hit(run) and fault.since <= again.start.at]
        if reasons:
            yield Repeat(min(reasons, key=lambda fault: fault.since), run, again)
        else:
            mistakes.append(f"{run} ran again, with token {again.start.token}, and no fault explains it")


def _charged(runs: Sequence[Run]) -> Iterator[str]:
    """A lost worker counts no attempt. Only a crash in a process of its own does, and the first run is never that."""
    for number, run in enumerate(runs):
        if run.start.attempt > max(number, 1):
            yield f"{run} is attempt {run.start.attempt} after {number} runs that were cut"


def _survived(repeats: Iterable[Repeat]) -> Iterator[str]:
    """Whatever kill cuts a run ends the worker whose claim it was: not after the run, and so the worker cannot repeat it."""
    for repeat in repeats:
        if repeat.fault.what != "freeze" and repeat.run.start.worker == repeat.again.start.worker:
            yield f"{repeat.run} ran again in its own worker {repeat.run.start.worker}, which did not wait for its end"


def _too_many(repeats: Iterable[Repeat], slots: int) -> Iterator[str]:
    """At most as many jobs as a worker has slots had started and were not settled."""
    numbers = Counter((repeat.fault, repeat.run.start.worker) for repeat in repeats)
    for (fault, worker), number in numbers.items():
        if number > slots:
            yield f"{number} jobs of worker {worker} ran again after the {fault.what} of {fault.role}, and it had {slots} slots"


def _idle_faults(marks: Sequence[Mark], faults: Sequence[Fault]) -> Iterator[str]:
    """A fault after all is done shows nothing."""
    last = max((mark.at for mark in marks if mark.what == "end"), default=0)
    for fault in faults:
        if fault.since >= last:
            yield f"the {fault.what} of {fault.role} came when all was done: it shows nothing"
