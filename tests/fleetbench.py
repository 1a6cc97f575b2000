"""What the fault tests share: fleets as real processes, ways to harm them, and the trial they stand.

A `Trial` is one store with all that was enqueued, the fleets that worked on it and the faults they met. A `Fleet` is what one
`laneway worker` command started. It has a session of its own, so all its processes are found in /proc, whoever their parent is by
now. The trial adopts orphans and buries them as a good init does: what then remains of a fleet was left behind by it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import fleet_jobs
from fleet_evidence import RECORD, Fault, Job, Mark, Repeat, Verdict, check, read
from laneway import App
from laneway.desk.task import Bound
from workbench import ALL_DONE, DEADLINE, until, url

__all__ = ["Fleet", "Process", "Tail", "Trial", "figures", "open_trial", "tell"]

PR_SET_CHILD_SUBREAPER = 36
#: How a fleet's processes call themselves; the kernel's own name for a process ends after 15 letters.
ROLES = {"laneway: zygote": "zygote", "laneway: worker": "worker", "laneway: isolat": "isolated"}


def tell(text: str) -> None:
    """Say a figure: pytest shows it with -s, and when the test fails."""
    sys.stdout.write(f"{text}\n")


# -- processes ---------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """A process as /proc has it."""

    pid: int
    parent: int
    session: int
    state: str
    title: str

    @property
    def lives(self) -> bool:
        return self.state not in "ZX"

    @property
    def role(self) -> str:
        return next((role for title, role in ROLES.items() if self.title.startswith(title)), "other")


def family(sessions: Collection[int]) -> list[Process]:
    """Return the processes of sessions, zombies included."""
    found = (_look(int(name), sessions) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def _look(pid: int, sessions: Collection[int]) -> Process | None:
    folder = Path("/proc", str(pid))
    try:
        if os.getsid(pid) not in sessions:  # one call into the kernel: most processes are not ours
            return None
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        # The name in parentheses may hold anything: what counts comes after the last one.
        fields = stat[stat.rindex(")") + 2 :].split()
        title = (folder / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ").strip()
    except OSError:
        return None
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    return Process(pid, int(fields[1]), int(fields[3]), fields[0], title if title.startswith("laneway: ") else name)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Fleet:
    """What one `laneway worker` command started."""

    def __init__(
        self, trial: Trial, log: Path, options: Collection[str], slots: int, *, inside: Collection[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Start it, by a command that starts commands elsewhere (`inside`) if there is one."""
        self.slots = slots
        self.log = log
        self._trial = trial
        command = [*inside, sys.executable, "-m", "laneway", "worker", trial.program, "-s", str(slots), *options]
        self.since = time.monotonic_ns()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=trial.folder, env={**trial.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid
        self.session = self.pid  #: as its own runs know it

    def known_as(self, pids: Iterable[int]) -> dict[int, int]:
        """Return pids with what these processes call themselves: not the same where they live in a namespace of their own."""
        return {pid: pid for pid in pids}

    def members(self) -> list[Process]:
        """Return its living processes, the supervisor first."""
        living = [p for p in self.remains() if p.lives]
        return sorted(living, key=lambda p: (p.pid != self.pid, p.role != "zygote", p.pid))

    def remains(self) -> list[Process]:
        """Return its processes and zombies, once orphans are buried."""
        return [p for p in self._trial.bury() if p.session == self.pid]

    def of_role(self, role: str) -> list[int]:
        """Return the pids of its supervisor, zygote, workers or isolated runs."""
        if role == "supervisor":
            return [self.pid]
        members = self.members()
        zygotes = {p.pid for p in members if p.role == "zygote" and p.parent == self.pid}
        if role == "zygote":
            return sorted(zygotes)
        return [p.pid for p in members if p.role == role and p.parent in zygotes]

    def until_started(self) -> None:
        """Wait until it has workers: before that a signal ends it as it ends any program."""
        until(lambda: self.of_role("worker"), "a fleet's first worker")

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    # -- harm --------------------------------------------------------------------------------------------

    def kill(self, role: str, *targets: int) -> Fault:
        """Kill -9 processes of a role, all of it by default and in the given order; wait until all that die of it are dead."""
        members = self.members()
        hit = list(targets or ([p.pid for p in members] if role == "fleet" else self.of_role(role)))
        assert hit, f"there is no {role} to kill: {members}"
        doomed = {p.pid for p in members if role in ("supervisor", "fleet") or not {p.pid, p.parent}.isdisjoint(hit)}
        names = self.known_as(doomed.union(hit))
        since = time.monotonic_ns()
        signal_all(hit, signal.SIGKILL)
        if self.pid in hit:
            self.process.wait(DEADLINE)
            until(lambda: not self.members(), f"the death of all that the {role} {hit} takes with it")
        else:
            # Dead and buried: who lives on in the fleet leaves no zombie.
            until(lambda: doomed.isdisjoint(p.pid for p in self.remains()), f"the end of {doomed}, killed with {role} {hit},")
        fault = Fault("kill", role, frozenset(names.values()), since, time.monotonic_ns(), fleet=self.session)
        self._trial.faults.append(fault)
        return fault

    @contextlib.contextmanager
    def frozen(self) -> Generator[Fault | None]:
        """Stop all its processes while the block runs.

        None if one of them has the store's write lock just now: then nobody could do anything until it wakes, which is known and
        not what is to be shown. It is woken at once.
        """
        since = time.monotonic_ns()
        pids: set[int] = set()
        while awake := [p.pid for p in self.members() if p.state not in "Tt"]:
            signal_all(awake, signal.SIGSTOP)
            pids.update(awake)
        done = time.monotonic_ns()
        names = frozenset(self.known_as(pids).values())
        fault = Fault("freeze", "fleet", names, since, done, 2**63) if self._trial.can_write() else None
        try:
            yield fault
        finally:
            over = time.monotonic_ns()
            signal_all(sorted(pids), signal.SIGCONT)
            if fault is not None:
                self._trial.faults.append(Fault("freeze", "fleet", fault.pids, since, done, over))

    # -- its end -----------------------------------------------------------------------------------------

    def stop(self, number: signal.Signals = signal.SIGTERM, *, everybody: bool = False, timeout: float = DEADLINE) -> float:
        """Ask it to stop: its supervisor, or each of its processes. Returns how long that took; every stop is clean."""
        since = time.monotonic()
        signal_all([p.pid for p in self.members()] if everybody else [self.pid], number)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            left = "\n".join(map(str, self.remains()))
            raise AssertionError(f"fleet {self.pid} did not stop within {timeout:g} s:\n{left}") from None
        took = time.monotonic() - since
        left_over = [str(p) for p in self.members()]
        assert (code, left_over) == (0, []), f"exit code {code} after {number.name}; still alive: {left_over}"
        return took

    def assert_gone(self) -> None:
        """Nothing is left of it: no process, and no zombie as soon as we had the time to bury orphans."""
        assert not self.lives
        assert self.members() == [], "processes outlived their fleet"
        until(lambda: not self.remains(), f"the last zombie's end, of fleet {self.pid},")

    def end(self) -> None:
        """End it whatever it does."""
        until(lambda: not self._end_once(), f"the end of fleet {self.pid}")

    def _end_once(self) -> list[Process]:
        members = self.members()
        signal_all([p.pid for p in members], signal.SIGKILL)
        self.process.poll()
        return members


# -- the trial ---------------------------------------------------------------------------------------------------


class Tail:
    """Reads the evidence as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.marks: list[Mark] = []
        self.ended: set[str] = set()
        self.fleets: set[int] = set()
        self._running: dict[tuple[str, int], Mark] = {}

    def look(self) -> None:
        new = read(self.path, len(self.marks) * RECORD)
        self.marks += new
        for mark in new:
            if mark.what == "start":
                self._running[mark.id, mark.token] = mark
                self.fleets.add(mark.fleet)
            else:
                self._running.pop((mark.id, mark.token), None)
                self.ended.add(mark.id)

    def running(self) -> list[Mark]:
        """Return the starts of runs that have not noted an end."""
        self.look()
        return list(self._running.values())


@dataclass
class Trial:
    """One store, what was enqueued, who worked on it, and what happened to them."""

    folder: Path
    dead_after: float = 15.0
    program: str = fleet_jobs.__file__  #: the app that its fleets run
    store: str = ""  #: its URL; empty: a file in the folder

    def __post_init__(self) -> None:
        # How long an enqueue may take is tested elsewhere.
        self.app = App(self.store or url(self.folder), enqueue_timeout=DEADLINE)
        self.tasks = fleet_jobs.declare(self.app)
        self.tail = Tail(self.folder / "evidence")
        self.jobs: dict[str, Job] = {}
        self.faults: list[Fault] = []
        self.fleets: list[Fleet] = []
        self._in_lane: Counter[str] = Counter()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "FLEET_"))}
        self.environment = {
            **kept,
            "FLEET_STORE": self.app.url,
            "FLEET_EVIDENCE": str(self.tail.path),
            "FLEET_DEAD_AFTER": str(self.dead_after),
            "TMPDIR": str(self.folder),  # who is killed cannot tidy up
        }

    # -- what it does ------------------------------------------------------------------------------------

    def start(self, *options: str, processes: int = 2, slots: int = 5) -> Fleet:
        """Start a fleet."""
        log = self.folder / f"fleet-{len(self.fleets) + 1}.log"
        fleet = Fleet(self, log, ["-p", str(processes), *options], slots)
        self.fleets.append(fleet)
        return fleet

    def enqueue(self, lanes: Iterable[str], seconds: float = 0.005) -> list[str]:
        """Enqueue a job of some length in each of these lanes, in one step; return the ids."""
        return self.push(lanes, lambda id_, lane, seq: self.tasks.step.using(id=id_).bind(lane, seq, seconds))

    def enqueue_held(self, lanes: Iterable[str], gate: Path, *, hog: bool = False) -> list[str]:
        """Enqueue jobs that go on when there is a file `gate`; those that hog hold the interpreter until then."""
        task = self.tasks.hog if hog else self.tasks.hold
        return self.push(lanes, lambda id_, lane, seq: task.using(id=id_).bind(lane, seq, str(gate)))

    def push(self, lanes: Iterable[str], bind: Callable[[str, str, int], Bound]) -> list[str]:
        """Enqueue a job in each of these lanes, made from its id, lane and number there; return the ids."""
        new: dict[str, Job] = {}
        for lane in lanes:
            new[f"j{len(self.jobs) + len(new)}"] = Job(lane, self._in_lane[lane])
            self._in_lane[lane] += 1
        accepted = self.app.enqueue_many((bind(id_, job.lane, job.seq) for id_, job in new.items()), chunk=10_000)
        assert accepted == len(new)
        self.jobs |= new
        return list(new)

    # -- what it sees ------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """How many accepted jobs have not ended yet."""
        self.tail.look()
        return len(self.jobs) - len(self.tail.ended)

    def until_left(self, number: int) -> None:
        """Wait until no more jobs than that have not ended. Only standing still is a failure."""
        least, deadline = len(self.jobs) + 1, 0.0
        while (left := self.left) > number:
            if left < least:
                least, deadline = left, time.monotonic() + DEADLINE
            assert time.monotonic() < deadline, f"{left} jobs have not ended and none does; the store has {self.counts()}"
            time.sleep(0.003)

    def until_running(self, ids: Collection[str], since: int = 0) -> list[Mark]:
        """Wait until all of these jobs run at once, in runs that began after a time; return their starts."""
        wanted = set(ids)

        def running() -> list[Mark]:
            return [mark for mark in self.tail.running() if mark.id in wanted and mark.at > since]

        until(lambda: {mark.id for mark in running()} == wanted, f"the start of {len(wanted)} jobs")
        return running()

    def until_at_work(self, fleet: Fleet) -> None:
        """Wait until a fleet has begun its first job."""

        def at_work() -> bool:
            self.tail.look()
            return fleet.session in self.tail.fleets

        until(at_work, "the first job of a fleet")

    def counts(self) -> dict[str, int]:
        return {state: number for state, number in self.app.inspect.counts().items() if number}

    def can_write(self) -> bool:
        """Say whether the store's write lock can be had: who is in line, or writes, and is well lets go within moments."""
        if self.store:
            return True  # a server has no such lock
        deadline = time.monotonic() + 1.0
        with contextlib.ExitStack() as files:
            for name in ("turn", "write"):
                file = files.enter_context((self.folder / "jobs.db-sync" / name).open("rb"))
                while True:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            return False
                        time.sleep(0.0005)
        return True

    # -- how it ends -------------------------------------------------------------------------------------

    def cut(self, fleet: Fleet, stop: Callable[[], float]) -> float:
        """Stop a fleet in a way that leaves its runs no time to end; note that as a fault."""
        since, pids = time.monotonic_ns(), frozenset(p.pid for p in fleet.members())
        took = stop()
        self.faults.append(Fault("stop", "fleet", pids, since, time.monotonic_ns()))
        return took

    def finish(self, *fleets: Fleet) -> Verdict:
        """Let everything end, stop the fleets, and check store and evidence."""
        self.until_left(0)
        until(lambda: not self.counts(), f"an empty store: {self.counts()} are left;")
        for fleet in fleets:
            fleet.until_started()
            fleet.stop()
        for fleet in self.fleets:
            fleet.assert_gone()
        self.tail.look()
        slots = max(fleet.slots for fleet in self.fleets)
        verdict = check(self.jobs, self.tail.marks, self.faults, slots)
        totals = self.app.store_inspect.totals()
        tell(figures(verdict, self.faults, totals))
        assert not verdict.mistakes, f"{len(verdict.mistakes)} mistakes:\n" + "\n".join(verdict.mistakes[:20])
        assert self.app.inspect.counts() == ALL_DONE
        assert (totals["enqueued"], totals["processed"], totals["failed"]) == (len(self.jobs), len(self.jobs), 0)
        return verdict

    def bury(self) -> list[Process]:
        """Reap the orphans that came to us, since their parents were killed. Returns what is left of all fleets."""
        left: list[Process] = []
        for process in family({fleet.pid for fleet in self.fleets}):
            orphan = process.parent == os.getpid() and process.pid != process.session
            if process.lives or not orphan or os.waitpid(process.pid, os.WNOHANG)[0] != process.pid:
                left.append(process)
        return left

    def close(self) -> None:
        """End what still runs, and show what the last fleets said."""
        try:
            for fleet in self.fleets:
                fleet.end()
        finally:
            self.app.close()
            for fault in self.faults:
                tell(f"{fault.what} of {fault.role} {sorted(fault.pids)} at {fault.since}, within {fault.done - fault.since} ns")
            for fleet in self.fleets[-4:]:
                said = fleet.log.read_text(errors="replace").splitlines()
                tell(f"-- fleet {fleet.pid}, {len(said)} lines, the last of them:")
                tell("\n".join(said[-40:]))


@contextlib.contextmanager
def open_trial(folder: Path, dead_after: float = 15.0, program: str = fleet_jobs.__file__, store: str = "") -> Generator[Trial]:
    """Hold a trial, on a store in its folder unless another one's URL is given. Meanwhile orphans of its fleets come to us."""
    _adopt_orphans(True)
    trial = Trial(folder, dead_after, program, store)
    try:
        yield trial
    finally:
        try:
            trial.close()
        finally:
            _adopt_orphans(False)


def _adopt_orphans(adopt: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0, os.strerror(ctypes.get_errno())


def figures(verdict: Verdict, faults: Collection[Fault], totals: dict[str, int]) -> str:
    """Say in a few lines what happened."""
    by_role: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in verdict.repeats:
        by_role[f"{repeat.fault.what} of {repeat.fault.role}"].append(repeat)
    lines = [
        f"{len(verdict.runs)} runs, {len(verdict.repeats)} of them repeats; store: "
        f"processed {totals['processed']}, recovered {totals['recovered']}, refused {totals['refused']}"
    ]
    for name, number in sorted(Counter(f"{fault.what} of {fault.role}" for fault in faults).items()):
        repeats = by_role[name]
        most = max(Counter(repeat.fault for repeat in repeats).values(), default=0)
        seconds = sorted(repeat.seconds for repeat in repeats) or [0.0]
        lines.append(
            f"  {number:3} × {name:18} repeats: {len(repeats) / number:.1f} each, at most {most}; "
            f"run again after {seconds[len(seconds) // 2]:.3f} s (median), {seconds[-1]:.3f} s (at most)"
        )
    return "\n".join(lines)
