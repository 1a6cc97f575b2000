"""Fleets on a Redis server that is killed, cuts its connections, sleeps, forgets its scripts or stays away; and fleets that are
killed on a healthy one.

Every test ends in `Trial.finish`: nothing lost, no lane overtaken or run twice at once, no repeat that a fault does not explain.
Trouble of the server explains none.

FLEET_SEEDS=1,2,3 and COLLECT_SEEDS=1,2,3 choose other chances than the usual ones.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import collect_jobs
import fleet_jobs
import host_jobs
import redisbench
from conftest import SOAK, often
from fleet_evidence import SECOND, Job
from fleetbench import Trial, open_trial, tell
from laneway import App
from laneway.desk.task import Bound
from laneway.errors import BulkError, StoreUnavailable
from test_fleet_collect import SEEDS as COLLECT_SEEDS
from test_fleet_collect import collect_at_random
from test_fleet_kill import SEEDS as FLEET_SEEDS
from test_fleet_kill import kill_at_random
from workbench import DEADLINE, SOON, until

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and adopts orphans")

only_in_soak = pytest.mark.skipif(not SOAK, reason="only with make soak")

#: So soon after the server's return a run begins, seconds.
AGAIN_WITHIN = SOON
#: An enqueue that cannot reach the server ends within this, seconds. The limit itself is a setting, and tested elsewhere.
FAILS_WITHIN = SOON
LANES = 10


@pytest.fixture(params=["no", "always"])
def server(request: pytest.FixtureRequest) -> Iterator[redisbench.Server]:
    """A server of our own that keeps what it is given when it is killed: it writes before it answers, and with `always` syncs.

    With `everysec`, its default, it writes at once too, unless a sync is on its way: then it may answer first (docs/redis.md).
    """
    own = redisbench.Server("--appendonly", "yes", "--appendfsync", request.param, "--enable-debug-command", "yes")
    yield own
    own.remove()


@pytest.fixture
def trial(server: redisbench.Server, tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, store=server.url) as made:
        yield made


# -- work ----------------------------------------------------------------------------------------------------------


class Producer:
    """Enqueues a few jobs at a time, in a thread, whatever becomes of the server.

    Who is told that the store cannot be reached does not know whether its jobs are there: the answer may have been lost. So they
    are noted as unsure, and their lanes end with them: whatever became of them, nobody waits behind them.
    """

    def __init__(self, trial: Trial) -> None:
        self.unsure: dict[str, Job] = {}
        self.failures: list[tuple[float, str]] = []  #: how long it took, and what was said
        self.called: dict[str, int] = {}  #: when accepted jobs were enqueued
        self._trial = trial
        self._app = App(trial.app.url)
        self._task = fleet_jobs.declare(self._app).step
        self._generation = 0
        self._in_lane: Counter[str] = Counter()
        self._ends = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.wait(0.04):
                self._enqueue()
        except BaseException as error:  # noqa: BLE001 - raised where the test ends
            self._error = error

    def _enqueue(self) -> None:
        """Enqueue one job, and then some at once."""
        (single,) = self._next(["single"]).items()
        self._note(dict([single]), lambda: self._single(*single))
        several = self._next([f"l{lane}" for lane in range(LANES)])
        self._note(several, lambda: self._app.enqueue_many(self._bind(*one) for one in several.items()))

    def _next(self, lanes: list[str]) -> dict[str, Job]:
        """Make up the next job of each of these lanes."""
        new: dict[str, Job] = {}
        for lane in lanes:
            named = f"{lane}.{self._generation}"
            new[f"p{len(self.called) + len(self.unsure) + len(new)}"] = Job(named, self._in_lane[named])
        return new

    def _single(self, id_: str, job: Job) -> None:
        self._task.using(id=id_).enqueue(job.lane, job.seq, 0.005)

    def _bind(self, id_: str, job: Job) -> Bound:
        return self._task.using(id=id_).bind(job.lane, job.seq, 0.005)

    def _note(self, new: dict[str, Job], send: Callable[[], object]) -> None:
        since = time.monotonic_ns()
        try:
            send()
        except (StoreUnavailable, BulkError) as error:
            if not isinstance(error.__cause__ if isinstance(error, BulkError) else error, StoreUnavailable):
                raise
            self.failures.append(((time.monotonic_ns() - since) / SECOND, str(error)))
            self.unsure |= new
            self._generation += 1
        else:
            self._trial.jobs |= new
            self.called |= dict.fromkeys(new, since)
            self._in_lane.update(job.lane for job in new.values())

    def end(self) -> None:
        """Stop, and raise what went wrong."""
        self._ends.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "an enqueue hangs"
        self._app.close()
        if self._error is not None:
            raise self._error


class Scene:
    """A fleet at work, and somebody who enqueues."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.fleet = trial.start("--beat", "0.5")
        self.producer = Producer(trial)
        until(lambda: len(self.workers_since(0)) == 2, "work in both processes")
        self.before = {process.pid for process in self.fleet.members()}

    def workers_since(self, moment: int) -> dict[int, int]:
        """Return which workers have begun a job that was enqueued after a moment, and when."""
        self.trial.tail.look()
        begun: dict[int, int] = {}
        for mark in reversed(self.trial.tail.marks):
            if mark.at < moment:
                break
            if mark.what == "start" and self.producer.called.get(mark.id, -1) > moment:
                begun[mark.worker] = mark.at
        return begun

    def again_since(self, moment: int) -> list[float]:
        """Wait until both workers have begun a job that was enqueued after a moment; return after how many seconds each."""
        until(lambda: len(self.workers_since(moment)) == 2, "claims of both workers after the server's return")
        return sorted((at - moment) / SECOND for at in self.workers_since(moment).values())

    def finish(self) -> None:
        """Let all end, and judge. What nobody knew to be accepted may have run: then it was."""
        trial, producer = self.trial, self.producer
        producer.end()
        assert {process.pid for process in self.fleet.members()} == self.before, "a process of the fleet ended, or began"
        until(lambda: not trial.counts(), "an empty store")
        trial.tail.look()
        ran = {mark.id for mark in trial.tail.marks}
        trial.jobs |= {id_: job for id_, job in producer.unsure.items() if id_ in ran}
        verdict = trial.finish(self.fleet)
        assert not verdict.repeats
        assert trial.app.store_inspect.totals()["recovered"] == 0, "somebody was taken for dead"
        took = sorted(seconds for seconds, _ in producer.failures)
        unsure = len(producer.unsure)
        tell(
            f"{len(trial.jobs)} jobs; {len(took)} enqueues failed, after {took[-1] if took else 0:.3f} s at most; "
            f"of {unsure} jobs in them {len(ran & producer.unsure.keys())} had been accepted"
        )
        assert not took or took[-1] < FAILS_WITHIN
        assert not [said for _, said in producer.failures if "\n" in said or not said.startswith("the store redis://")]


@contextmanager
def at_work(trial: Trial) -> Generator[Scene]:
    scene = Scene(trial)
    try:
        yield scene
    except BaseException:
        scene.producer.end()
        raise
    scene.finish()


def trouble(trial: Trial, happens: Callable[[], object], what: str, *, times: int = 1) -> Scene:
    """Let something happen to the server in the middle of work, and measure how soon work goes on."""
    first: list[float] = []
    last: list[float] = []
    with at_work(trial) as scene:
        for _ in range(times):
            happens()
            returned = time.monotonic_ns()
            soonest, latest = scene.again_since(returned)
            first.append(soonest)
            last.append(latest)
    tell(f"{what}: a claim after {max(first):.3f} s, of both workers after {max(last):.3f} s, at most, in {times} times")
    assert max(first) < AGAIN_WITHIN
    return scene


# -- the server in trouble -----------------------------------------------------------------------------------------


def restart(server: redisbench.Server, away: float = 0.0) -> None:
    """Kill the server; start it again on the same port and folder after a while. Returns when it answers."""
    server.stop(kill=True)
    time.sleep(away)
    server.start()


@pytest.mark.soak
@pytest.mark.parametrize("server", ["no", "always"], indirect=True)
def test_a_server_that_is_killed_and_restarted_loses_nothing(trial: Trial, server: redisbench.Server) -> None:
    trouble(trial, lambda: restart(server), "killed and restarted", times=often(1, 3))


@pytest.mark.soak
@pytest.mark.parametrize("server", ["no"], indirect=True)
def test_connections_that_are_cut_are_made_again_and_nothing_is_lost(trial: Trial, server: redisbench.Server) -> None:
    cut: list[int] = []
    trouble(trial, lambda: cut.append(server.ask("CLIENT", "KILL", "TYPE", "normal")), "all connections cut", times=often(4, 12))
    assert min(cut) >= 2, "both workers have some"


@pytest.mark.parametrize("server", ["no"], indirect=True)
def test_a_server_that_sleeps_is_waited_for(trial: Trial, server: redisbench.Server) -> None:
    scene = trouble(trial, lambda: server.ask("DEBUG", "SLEEP", "3"), "asleep for 3 s")
    assert scene.producer.failures, "an enqueue hung until the server woke up"


@pytest.mark.soak
@pytest.mark.parametrize("server", ["no"], indirect=True)
def test_a_server_that_forgets_its_scripts_is_told_them_again(trial: Trial, server: redisbench.Server) -> None:
    scene = trouble(trial, lambda: server.ask("SCRIPT", "FLUSH"), "scripts forgotten", times=often(4, 12))
    assert not scene.producer.failures


def stay_away(trial: Trial, server: redisbench.Server, seconds: float) -> None:
    scene = trouble(trial, lambda: restart(server, seconds), f"away for {seconds:g} s")
    assert len(scene.producer.failures) > 3
    said = scene.fleet.log.read_text()
    assert said.count("keeps trying; nothing is lost") <= 3, "each process says once that the store is away"
    assert said.count("the store is back") == 2


@pytest.mark.parametrize("server", ["no"], indirect=True)
def test_a_server_that_is_away_for_a_while_is_waited_for(trial: Trial, server: redisbench.Server) -> None:
    stay_away(trial, server, 2.0)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("server", ["no"], indirect=True)
def test_who_is_silent_because_the_server_is_away_is_not_taken_for_dead(server: redisbench.Server, tmp_path: Path) -> None:
    with open_trial(tmp_path, dead_after=1.0, store=server.url) as hasty:
        stay_away(hasty, server, 3.0)


@pytest.mark.soak
@only_in_soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", ["no", "always"], indirect=True)
def test_a_server_that_is_away_for_a_minute_is_waited_for(trial: Trial, server: redisbench.Server) -> None:
    stay_away(trial, server, 60.0)


@pytest.mark.soak
@only_in_soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("server", ["no", "always"], indirect=True)
def test_a_server_that_is_killed_again_and_again_loses_nothing(trial: Trial, server: redisbench.Server) -> None:
    trouble(trial, lambda: restart(server), "killed and restarted", times=50)


#: Loaded by Python itself when it starts: a worker says late that it is there, after its supervisor's beat, and the supervisor
#: hears even later what that brought.
SLOW_ANSWER = """
import threading, time
from laneway.store.redis.store import RedisStore

beat = RedisStore.beat

def slowly(store, workers):
    keeper = threading.current_thread().name == "laneway-store"
    if not keeper:
        time.sleep(0.15)
    heard = beat(store, workers)
    if keeper and not all(one.known for one in heard.values()):
        time.sleep(0.4)
    return heard

RedisStore.beat = slowly
"""


def test_a_new_worker_is_not_told_that_it_was_taken_for_dead(tmp_path: Path) -> None:
    """The supervisor may beat for a worker that has not said yet that it is there, and hear late that nobody knew it."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_ANSWER)
    with open_trial(tmp_path, program=host_jobs.__file__, store=redisbench.emptied().url) as trial:
        trial.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), trial.environment.get("PYTHONPATH", "")])
        tasks = host_jobs.declare(trial.app)
        trial.push((f"l{n}" for n in range(10)), lambda id_, lane, seq: tasks.astep.using(id=id_).bind(lane, seq, 0.6))
        fleet = trial.start("--beat", "0.05")
        assert not trial.finish(fleet).repeats
        assert "taken for dead" not in fleet.log.read_text()


# -- fleets that are killed on a healthy server --------------------------------------------------------------------


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, store=redisbench.emptied().url) as made:
        yield made


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, program=collect_jobs.__file__, store=redisbench.emptied().url) as made:
        yield made


@pytest.mark.parametrize("seed", FLEET_SEEDS)
def test_kill_9_at_random_loses_nothing_and_repeats_only_what_it_cut(healthy: Trial, seed: int) -> None:
    kill_at_random(healthy, seed, kills=4, jobs=600)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", FLEET_SEEDS)
def test_kill_9_at_random_for_long(healthy: Trial, seed: int) -> None:
    kill_at_random(healthy, seed, kills=200, jobs=50_000)


@pytest.mark.parametrize("seed", COLLECT_SEEDS)
def test_lanes_are_collected_in_order_and_nothing_is_swallowed_whatever_is_killed(collecting: Trial, seed: int) -> None:
    collect_at_random(collecting, seed, kills=3, payloads=900)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", COLLECT_SEEDS)
def test_lanes_are_collected_in_order_for_long(collecting: Trial, seed: int) -> None:
    collect_at_random(collecting, seed, kills=200, payloads=100_000)
