"""The store as a small program: the rules of lanes and nothing else.

Written from the design, not from the store: jobs are objects in a dict, every verb looks at all of them, nothing is fast.
The store must give the same answers. `rules` are the ones in force; a test takes each away and shows that `sound`
or `end` notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

RULES = frozenset({
    "claim takes the lane or parks",  # a job whose lane has another holder does not run
    "the holder is a job",  # retry, snooze, give-back and recovery keep the lane
    "one exit",  # whoever leaves hands the lane on
    "the next holds at once",  # though not yet claimed
    "by place",  # among the waiting the first to have come is next
    "tokens",  # only the holder of the claim settles
    "time never goes back",
    "a replay takes a new place",
    "a rescheduled job takes a new place",  # unless it has started
    "unheard claims go back",  # after a lost answer
    "of equal jobs one waits",
    "a key ends at the claim",  # so that a change during the run is not swallowed
    "what has started does not expire",
    "a dead head halts its lane",  # if it died so: nobody passes it
    "a halted head keeps its place",  # when it is replayed
    "what is finished is done",  # by a user's transaction: whatever the outcome is, and whatever becomes of its worker
})  # fmt: skip


@dataclass
class Job:
    id: str
    queue: str
    lane: str | None
    priority: int
    place: tuple[int, int]
    due: int
    key: str | None = None  # an equal job has the same
    end_key: str | None = None  # the key, if it lasts until the job's end: a replayed one takes it again
    expires: int | None = None  # it is not to start later
    where: str = "waiting"  # waiting | parked | running | dead
    failed: bool = False
    attempt: int = 0
    worker: str | None = None
    token: int | None = None
    mark: str | None = None
    lost: str = ""  # why the claim before was lost: forgotten when a run has come to an end
    claimed: bool = False  # at least once, since it took its place
    started: bool = False  # a run was settled, or lost with its worker
    halts: bool = False  # it is dead, and its lane is not to go on
    finished: bool = False  # its run, by a transaction of a user's


@dataclass
class Model:
    rules: frozenset[str] = RULES
    clock: int = 1_000_000_000
    now: int = 1_000_000_000
    seq: int = 0
    token: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    holder: dict[tuple[str, str], str] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    gone: list[tuple[str, str]] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)

    # -- verbs -----------------------------------------------------------------------------------------------

    def tick(self, by: int) -> None:
        self.clock += by

    def begin(self) -> None:
        """Every verb first looks at the clock."""
        self.now = max(self.now, self.clock) if "time never goes back" in self.rules else self.clock

    def push(
        self, id_: str, queue: str, lane: str | None, priority: int, delay: int, key: str | None = None, expires: int = 0,
        until_end: bool = False,
    ) -> str | None:  # fmt: skip
        """Take a job; or say which is there in its stead."""
        self.begin()
        self.seq += 1
        if id_ in self.jobs:
            return id_
        equal = next((j for j in self.jobs.values() if key is not None and j.key == key), None)
        if equal is not None and "of equal jobs one waits" in self.rules:
            return equal.id
        place = (self.now + delay, self.seq)
        ends = place[0] + expires if expires else None
        self.jobs[id_] = Job(id_, queue, lane, priority, place, place[0], key, key if until_end else None, ends)
        self.totals["enqueued"] += 1
        return None

    def claim(self, worker: str, wants: Sequence[tuple[str, int]], limit: int) -> list[tuple[str, int, int, str]]:
        claims: list[tuple[str, int, int, str]] = []
        for queue, most in wants:
            taken = 0
            while queue not in self.paused and taken < most and len(claims) < limit:
                job = next(iter(self.walk(queue)), None)
                if job is None:
                    break
                if self.blocked(job):
                    job.where = "parked"
                elif self.too_old(job):
                    self.expire(job)
                else:
                    claims.append(self.take(job, worker))
                    taken += 1
        return claims

    def walk(self, queue: str) -> list[Job]:
        due = (j for j in self.jobs.values() if j.queue == queue and j.where == "waiting" and j.due <= self.now)
        return sorted(due, key=lambda j: (-j.priority, j.due, j.place))

    def blocked(self, job: Job) -> bool:
        if job.lane is None or "claim takes the lane or parks" not in self.rules:
            return False
        return self.holder.get((job.queue, job.lane), job.id) != job.id

    def too_old(self, job: Job) -> bool:
        if job.expires is None or (job.started and "what has started does not expire" in self.rules):
            return False
        return job.expires < self.now

    def expire(self, job: Job) -> None:
        """Leave, and if it holds its lane, take those next in the lane along that are too old as well."""
        old: Job | None = job
        while old is not None and self.too_old(old):
            assert not old.started, "expired though it had started"
            held = self.holds(old)
            self.leave(old, "cancelled")
            old = self.jobs.get(self.holder.get((old.queue, old.lane or ""), "")) if held else None

    def take(self, job: Job, worker: str) -> tuple[str, int, int, str]:
        self.check_order(job)
        assert not job.finished, "runs though it is finished"
        if job.lane is not None:
            self.holder[job.queue, job.lane] = job.id
        self.token += 1
        job.where, job.worker, job.token, job.claimed = "running", worker, self.token, True
        if "a key ends at the claim" in self.rules and job.end_key is None:
            job.key = None
        return job.id, self.token, job.attempt + 1, job.lost

    def settle(self, worker: str, id_: str, token: int, outcome: str, after: int = 0) -> bool:
        """Write one outcome; False is a refusal."""
        job = self.jobs.get(id_)
        fits = job is not None and ((job.worker == worker and job.token == token) or "tokens" not in self.rules)
        if job is None or not fits or job.where != "running":
            self.totals["refused"] += 1
            return False
        assert (job.worker, job.token) == (worker, token), "settled by a stranger"
        job.started = True
        if self.is_done(job):
            self.leave_done(job)
        elif job.mark is not None and outcome != "done":
            self.end_as_asked(job)
        elif outcome in ("retrying", "snoozed"):
            self.totals["failed"] += outcome == "retrying"
            self.totals["retried"] += outcome == "retrying"
            job.attempt += outcome == "retrying"
            job.lost = ""
            self.back(job, self.now + after, failed=outcome == "retrying")
        else:
            self.totals["processed"] += outcome == "done"
            self.totals["failed"] += outcome in ("dead", "halted")
            self.leave(job, outcome)
        return True

    def give_back(
        self, worker: str, keep: Collection[int] = (), *, died: bool = False, lost: Mapping[int, str] = MappingProxyType({})
    ) -> list[str]:
        """Take claims back: by the worker itself, or because it died, with words for some of them."""
        self.begin()
        if keep and "unheard claims go back" not in self.rules:
            return []
        mine = [j for j in self.jobs.values() if j.where == "running" and j.worker == worker and j.token not in keep]
        done = {job.id for job in mine if self.is_done(job)}
        for job in sorted(mine, key=lambda j: j.place):
            if job.id in done:
                self.leave_done(job)
            elif job.mark is not None:
                self.end_as_asked(job)
            else:
                job.lost = lost.get(job.token or 0, job.lost)
                job.started = job.started or died
                self.back(job, job.due, failed=False)
        return sorted(job.id for job in mine if job.id not in done)

    def finish(self, id_: str, token: int) -> bool:
        """Finish a run in a transaction of a user's; False: the claim is not held, or marked, or finished already."""
        job = self.jobs.get(id_)
        if job is None or (job.where, job.token, job.mark, job.finished) != ("running", token, None, False):
            return False
        job.finished = True
        return True

    def act(self, name: str, id_: str, delay: int) -> bool | None:
        """Do something to a job by hand; None: there is no such job."""
        self.begin()
        job = self.jobs.get(id_)
        if job is None:
            return None
        if job.finished:
            return False
        if name == "retry":
            return self.retry(job)
        if name == "reschedule":
            return self.reschedule(job, delay)
        return self.ask(job, name)

    def act_all(self, name: str, delay: int, **which: str | None) -> int:
        """Do it to all that match when it begins, and still do when it is their turn, in the order of their numbers."""
        self.begin()
        matching = sorted((j for j in self.jobs.values() if self.matches(j, **which)), key=lambda j: j.place[1])
        return sum(bool(self.act(name, j.id, delay)) for j in matching if j.id in self.jobs and self.matches(j, **which))

    def matches(self, job: Job, state: str | None, queue: str | None, lane: str | None) -> bool:
        fits = state is None or (self.state(job) == state if state != "waiting" else job.where in ("waiting", "parked"))
        return fits and queue in (None, job.queue) and lane in (None, job.lane)

    def ask(self, job: Job, mark: str) -> bool:
        if job.where == "dead" and mark != "delete":
            return False
        job.mark = mark
        if job.where != "running":
            self.end_as_asked(job)
        return True

    def reschedule(self, job: Job, delay: int) -> bool:
        if job.where in ("running", "dead"):
            return False
        job.due = self.now + delay
        if job.started:
            return True
        job.where, held = "waiting", self.holds(job)
        if "a rescheduled job takes a new place" in self.rules:
            self.seq += 1
            job.expires = None if job.expires is None else job.expires + job.due - job.place[0]
            job.place, job.claimed = (job.due, self.seq), False
            if held:
                self.let_out(job)
        return True

    def retry(self, job: Job) -> bool:
        if job.where == "dead":
            stays = job.halts and "a halted head keeps its place" in self.rules
            if not stays and "a replay takes a new place" in self.rules:
                self.seq += 1
                job.place = (self.now, self.seq)
            job.due, job.where, job.attempt, job.failed = self.now, "waiting", 0, False
            job.claimed = job.started = job.halts
            job.halts = False
            if job.end_key is not None and all(other.key != job.end_key for other in self.jobs.values()):
                job.key = job.end_key
            return True
        if job.where == "waiting" and job.due > self.now and (job.failed or self.holds(job)):
            job.due, job.failed = self.now, False
            return True
        return False

    # -- ways out and ways back ------------------------------------------------------------------------------

    def holds(self, job: Job) -> bool:
        return job.lane is not None and self.holder.get((job.queue, job.lane)) == job.id

    def back(self, job: Job, due: int, *, failed: bool) -> None:
        job.where, job.due, job.failed, job.worker, job.token = "waiting", due, failed, None, None
        if "the holder is a job" not in self.rules and self.holds(job):
            self.let_out(job)

    def is_done(self, job: Job) -> bool:
        return job.finished and "what is finished is done" in self.rules

    def leave_done(self, job: Job) -> None:
        self.totals["processed"] += 1
        self.leave(job, "done")

    def end_as_asked(self, job: Job) -> None:
        self.leave(job, {"cancel": "cancelled", "delete": "deleted", "kill": "killed"}[job.mark or ""])

    def leave(self, job: Job, why: str) -> None:
        held = self.holds(job)
        self.totals["cancelled"] += why == "cancelled"
        if why in ("dead", "halted", "killed"):
            job.where, job.worker, job.token, job.mark, job.failed = "dead", None, None, None, False
            job.attempt, job.lost = job.attempt + (why != "killed"), ""
            job.due, job.key, job.expires = self.now, None, None
            self.totals["dead"] += 1
            job.halts = held and why == "halted"
            if job.halts and "a dead head halts its lane" in self.rules:
                return
        else:
            del self.jobs[job.id]
            self.gone.append((job.id, why))
        if held and ("one exit" in self.rules or why == "done"):
            self.let_out(job)

    def let_out(self, job: Job) -> None:
        assert job.lane is not None
        self.holder.pop((job.queue, job.lane), None)
        parked = [j for j in self.jobs.values() if (j.queue, j.lane, j.where) == (job.queue, job.lane, "parked")]
        if parked:
            pick = min if "by place" in self.rules else max
            after = pick(parked, key=lambda j: j.place)
            after.where = "waiting"
            if "the next holds at once" in self.rules:
                self.holder[job.queue, job.lane] = after.id

    # -- what must be true -----------------------------------------------------------------------------------

    def check_order(self, job: Job) -> None:
        """At a claim: nobody else of the lane runs, and nobody who has joined it stands before."""
        for other in self.jobs.values():
            if job.lane is None or other is job or (other.queue, other.lane) != (job.queue, job.lane):
                continue
            assert not other.halts, "passed a halted head"
            if other.where == "dead":
                continue
            assert other.where != "running", "two holders"
            joined = other.claimed or other.due <= self.now
            assert not joined or other.place > job.place, "overtaking"

    def sound(self) -> None:
        """After every step."""
        running = Counter((j.queue, j.lane) for j in self.jobs.values() if j.lane is not None and j.where == "running")
        assert all(number == 1 for number in running.values()), "two holders"
        assert self.totals["enqueued"] == len(self.jobs) + len(self.gone), "lost or doubled"
        keys = Counter(j.key for j in self.jobs.values() if j.key is not None)
        assert all(number == 1 for number in keys.values()), "equal jobs"
        for job in self.jobs.values():
            assert job.key is None or job.end_key or not job.claimed, "a key that outlived its claim"
            assert job.key is None or job.where != "dead", "a key that outlived its job"
            if job.where == "parked":
                lane = [j for j in self.jobs.values() if (j.queue, j.lane) == (job.queue, job.lane) and j is not job]
                assert any(
                    j.halts or j.where == "running" or (j.where == "waiting" and (self.holds(j) or j.due <= self.now))
                    for j in lane
                ), "stranded"

    # -- for comparing ---------------------------------------------------------------------------------------

    def state(self, job: Job) -> str:
        if job.where == "waiting":
            return "ready" if job.due <= self.now else "retrying" if job.failed else "scheduled"
        return {"parked": "blocked"}.get(job.where, job.where)

    def picture(self) -> dict[str, tuple[object, ...]]:
        self.begin()
        return {
            j.id: (
                j.queue, j.lane, self.state(j), j.attempt, j.worker, j.token, j.mark, j.place[0], j.due, self.holds(j),
                j.key is not None, None if j.started or j.where == "running" else j.expires,
            )
            for j in self.jobs.values()
        }  # fmt: skip
