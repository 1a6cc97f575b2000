"""Fleets under fire: killed, stopped and frozen at random, with evidence written outside the store.

Every test ends in `Trial.finish`: nothing lost, no lane overtaken or run twice at once, no repeat that a fault does not explain,
an empty store whose totals fit, and nothing left of any fleet.

FLEET_SEEDS=1,2,3 chooses other chances than the usual ones.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import SOAK, often
from fleet_evidence import SECOND, Fault, Mark
from fleetbench import Fleet, Trial, open_trial, tell
from workbench import DEADLINE, SOON, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and adopts orphans")

LANES = 500
SEEDS = [int(seed) for seed in os.environ.get("FLEET_SEEDS", "1").split(",")]

only_in_soak = pytest.mark.skipif(not SOAK, reason="only with make soak")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Trial]:
    """A trial in which silent workers are soon taken for dead."""
    with open_trial(tmp_path, dead_after=1.0) as made:
        yield made


class Portions:
    """Enqueues the jobs bit by bit, so that every fault falls into work, and says when its time has come."""

    def __init__(self, trial: Trial, seed: int, jobs: int, faults: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be had again
        self._trial = trial
        self._size = -(-jobs // faults)

    def next(self) -> None:
        """Enqueue a portion and wait until only a random part of it is left; at times do not wait."""
        self._enqueue()
        if self.chance.random() < 0.8:
            self._trial.until_left(self.chance.randint(self._size // 10, self._size * 9 // 10))

    def _enqueue(self) -> None:
        self._trial.enqueue(f"l{self.chance.randrange(LANES)}" for _ in range(self._size))


# -- kill -9 -----------------------------------------------------------------------------------------------------


def kill_at_random(trial: Trial, seed: int, *, kills: int, jobs: int) -> None:
    portions = Portions(trial, seed, jobs, kills)
    fleet, shown = trial.start(), 0
    while shown < kills:
        portions.next()
        kill_somebody(fleet, portions.chance)
        shown += trial.left > 0  # else all was done meanwhile, and the kill shows nothing
        if not fleet.lives:
            fleet.assert_gone()
            fleet = trial.start()
    verdict = trial.finish(fleet)
    assert len(trial.jobs) >= jobs
    assert verdict.repeats, "no kill met a job: this showed nothing"
    assert trial.app.store_inspect.totals()["refused"] == 0


def kill_somebody(fleet: Fleet, chance: random.Random) -> Fault:
    """Kill somebody. Who is meant may not be there, if the last kill was a moment ago: then the whole fleet."""
    role = chance.choice(("worker", "worker", "zygote", "supervisor", "fleet"))
    there = [] if role == "fleet" else fleet.of_role(role)
    if not there:
        role, there = "fleet", [p.pid for p in fleet.members()]
    number = chance.randint(1, len(there)) if role == "worker" else len(there)
    return fleet.kill(role, *chance.sample(there, number))  # in any order


@pytest.mark.parametrize("seed", SEEDS)
def test_kill_9_at_random_loses_nothing_and_repeats_only_what_it_cut(trial: Trial, seed: int) -> None:
    kill_at_random(trial, seed, kills=5, jobs=750)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", SEEDS)
def test_kill_9_at_random_for_long(trial: Trial, seed: int) -> None:
    kill_at_random(trial, seed, kills=200, jobs=50_000)


# -- clean stops -------------------------------------------------------------------------------------------------


def stop_at_random(trial: Trial, seed: int, *, stops: int, jobs: int, everybody: bool = False) -> None:
    portions = Portions(trial, seed, jobs, stops)
    took: list[float] = []
    for _ in range(stops):
        fleet = trial.start("--shutdown-timeout", "30")
        portions.next()
        trial.until_at_work(fleet)
        took.append(fleet.stop(everybody=everybody))
        assert trial.counts().get("running", 0) == 0, "claims outlived a clean stop"
        fleet.assert_gone()
    verdict = trial.finish(trial.start())
    tell(f"{stops} stops took {sorted(took)[stops // 2]:.3f} s (median), {max(took):.3f} s (at most)")
    totals = trial.app.store_inspect.totals()
    assert (verdict.repeats, totals["refused"], totals["recovered"]) == ([], 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_sigterm_at_random_loses_and_repeats_nothing(trial: Trial, seed: int) -> None:
    stop_at_random(trial, seed, stops=3, jobs=450)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sigterm_to_every_process_is_as_clean(trial: Trial, seed: int) -> None:
    # As systemd does by default, and as a terminal does with Ctrl-C.
    stop_at_random(trial, seed, stops=2, jobs=300, everybody=True)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_sigterm_at_random_for_long(trial: Trial, seed: int, everybody: bool) -> None:
    stop_at_random(trial, seed, stops=100, jobs=25_000, everybody=everybody)


def test_a_stop_that_cannot_wait_gives_back_what_ran(trial: Trial) -> None:
    """The time is over and jobs still run: their process ends, nothing is left of it, and the next fleet runs them again."""
    fleet, gate = trial.start("--shutdown-timeout", "0.5"), trial.folder / "gate"
    trial.until_running(trial.enqueue_held([f"l{n}" for n in range(10)], gate))
    trial.enqueue(f"l{n}" for n in range(10))
    took = trial.cut(fleet, fleet.stop)
    assert trial.counts().get("running", 0) == 0
    fleet.assert_gone()
    gate.touch()
    verdict = trial.finish(trial.start())
    tell(f"a stop with 0.5 s for jobs that do not end took {took:.3f} s")
    assert took < SOON
    assert len(verdict.repeats) == 10
    assert {run.start.attempt for run in verdict.runs} == {1}


def test_a_second_signal_ends_at_once(trial: Trial) -> None:
    fleet, gate = trial.start(), trial.folder / "gate"
    trial.until_running(trial.enqueue_held([f"l{n}" for n in range(10)], gate))

    def stop() -> float:
        os.kill(fleet.pid, signal.SIGTERM)
        until(lambda: b"SIGTERM" in fleet.log.read_bytes(), "the fleet saying that it stops")
        return fleet.stop()

    took = trial.cut(fleet, stop)
    assert trial.counts().get("running", 0) == 0
    fleet.assert_gone()
    gate.touch()
    trial.finish(trial.start())
    tell(f"a second signal ended the fleet in {took:.3f} s")
    assert took < SOON


# -- how soon it goes on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["worker", "zygote", "supervisor", "fleet"])
def test_what_a_kill_cut_runs_again_at_once(trial: Trial, role: str) -> None:
    """Not after the limit for silent workers, which is 15 s here."""
    fleet, gate = trial.start(), trial.folder / "gate"
    running = trial.until_running(trial.enqueue_held([f"l{n}" for n in range(10)], gate))
    victims = {mark.pid for mark in running}
    assert len(victims) == 2, "both workers have their share"
    fault = fleet.kill(role, running[0].pid) if role == "worker" else fleet.kill(role)
    gate.touch()  # what runs again from now on does not wait
    if not fleet.lives:
        fleet.assert_gone()
        fleet = trial.start()
    verdict = trial.finish(fleet)
    assert len(verdict.repeats) == sum(mark.pid in fault.pids for mark in running)
    seconds = sorted(repeat.seconds for repeat in verdict.repeats)
    since_start = max(0, fleet.since - fault.since) / SECOND
    tell(f"{role} killed: run again after {seconds[0]:.3f} to {seconds[-1]:.3f} s, the new fleet began at {since_start:.3f} s")
    assert seconds[-1] - since_start < SOON


@pytest.mark.soak
@pytest.mark.parametrize(("role", "rounds"), [("zygote", often(1, 10)), ("supervisor", often(1, 5)), ("fleet", often(1, 5))])
def test_isolated_runs_end_with_their_fleet_and_nobody_repeats_them_before(trial: Trial, role: str, rounds: int) -> None:
    """What was cut with a worker runs again alone. If its zygote is lost then, nobody goes on before that run is dead."""
    for number in range(rounds):
        fleet, gate = trial.start(), trial.folder / f"gate{number}"
        held = trial.enqueue_held([f"l{n}" for n in range(10)], gate)
        trial.enqueue(f"l{n}" for n in range(10))
        cut = trial.until_running(held)
        fault = fleet.kill("worker", *{mark.pid for mark in cut})
        alone = trial.until_running(held, fault.since)
        assert all(mark.pid != mark.worker for mark in alone), "suspects run alone"
        fleet.kill(role)
        gate.touch()
        if not fleet.lives:
            fleet.assert_gone()
            fleet = trial.start()
        trial.until_left(0)
        fleet.until_started()
        fleet.stop()
    trial.finish()


# -- nothing is left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["zygote", "supervisor", "fleet"])
def test_workers_whose_code_never_looks_up_die_with_their_parents(trial: Trial, role: str) -> None:
    fleet, gate = trial.start(), trial.folder / "gate"
    trial.until_running(trial.enqueue_held(["a", "b"], gate, hog=True))
    fault = fleet.kill(role)
    tell(f"all were dead {(fault.done - fault.since) / SECOND:.3f} s after the kill of the {role}")
    assert (fault.done - fault.since) / SECOND < SOON
    gate.touch()
    if not fleet.lives:
        fleet.assert_gone()
        fleet = trial.start()
    trial.finish(fleet)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_that_is_killed_while_it_starts_leaves_nothing(trial: Trial, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    trial.enqueue(f"l{n}" for n in range(1_000))
    for _ in range(often(4, 40)):
        fleet = trial.start()
        time.sleep(chance.uniform(0, 0.6))  # any moment will do
        fleet.kill(chance.choice(("supervisor", "fleet")))
        fleet.assert_gone()
        trial.enqueue(f"l{chance.randrange(1_000)}" for _ in range(100))
    trial.finish(trial.start())


# -- a burst -----------------------------------------------------------------------------------------------------

#: Loaded by Python itself when it starts: gives dead workers' jobs back later than new workers look for some.
SLOW_RECOVERY = """
import time
from laneway.store.sqlite import SQLiteStore

recover = SQLiteStore.recover

def slowly(*arguments, **options):
    time.sleep(0.5)
    return recover(*arguments, **options)

SQLiteStore.recover = slowly
"""


@pytest.mark.parametrize("role", ["worker", "zygote"])
def test_a_burst_ends_when_what_its_dead_held_is_done_too(trial: Trial, role: str) -> None:
    (trial.folder / "sitecustomize.py").write_text(SLOW_RECOVERY)
    trial.environment["PYTHONPATH"] = os.pathsep.join([str(trial.folder), trial.environment.get("PYTHONPATH", "")])
    gate = trial.folder / "gate"
    (held,) = trial.enqueue_held(["held"], gate)
    trial.enqueue(f"l{n}" for n in range(40))
    fleet = trial.start("--burst")
    (running,) = trial.until_running([held])
    trial.until_left(1)
    fleet.kill(role, running.pid) if role == "worker" else fleet.kill(role)
    gate.touch()
    assert fleet.process.wait(DEADLINE) == 0
    assert trial.counts() == {}, "a burst ended, and there was work to do"
    trial.finish()


# -- frozen ------------------------------------------------------------------------------------------------------


def freeze_by_turns(trial: Trial, *, rounds: int) -> None:
    """Freeze one of two fleets past the limit while the other one goes on, and wake it; then the other way round.

    It is frozen when each of its slots is in the middle of a run. A thread that is frozen between "may I?" and the first line of
    the job's code begins after the wake-up, and nobody can help that. Behind these runs claims wait in hand: they must not start.
    """
    fleets = [trial.start("--beat", "0.2") for _ in range(2)]
    until(lambda: all(works_in(trial, fleet, 2) for fleet in fleets), "work in both fleets")
    stale, in_hand = 0, []
    for number in range(rounds):
        gates = (trial.folder / f"gate-{number}-{attempt}" for attempt in range(5))
        shown = next((found for gate in gates if (found := freeze(trial, fleets[number % 2], gate))), None)
        assert shown is not None, "the fleet had the store's write lock each time"
        stale += shown[0]
        in_hand.append(shown[1])
    trial.finish(*fleets)
    refused = trial.app.store_inspect.totals()["refused"]
    tell(f"{rounds} freezes, claims in hand: {in_hand}; {stale} stale runs ended, {refused} outcomes were refused")
    assert refused >= stale


def freeze(trial: Trial, fleet: Fleet, gate: Path) -> tuple[int, int] | None:
    """Freeze a fleet until all its work was done elsewhere; return how many runs it was in, and how many claims it had in hand.

    Its runs wait for the gate, which opens when it is frozen. None if it had the store's write lock.
    """
    running = fill(trial, fleet, gate)
    with fleet.frozen() as fault:
        gate.touch()
        if fault is None:
            return None
        in_hand = claims_of(trial, running) - len(running)
        trial.until_left(0)
        until(lambda: not trial.counts(), "an empty store")
        trial.enqueue(f"l{n}" for n in range(200))  # and the lanes go on while it wakes up
    woken = time.monotonic_ns()
    until(lambda: works_in(trial, fleet, 1, woken), "work in a fleet that was woken")
    return len(running), in_hand


def fill(trial: Trial, fleet: Fleet, gate: Path) -> list[Mark]:
    """Let every slot of a fleet be in a run that waits for the gate, with short jobs in line behind; return their starts."""
    trial.enqueue(f"l{n}" for n in range(200))
    longer = set(trial.enqueue_held((f"long{n}" for n in range(30)), gate))
    trial.enqueue(f"{name}{n}" for name in ("long", "l") for n in range(30))

    def running() -> list[Mark]:
        return [mark for mark in trial.tail.running() if mark.fleet == fleet.pid and mark.id in longer]

    def is_full() -> bool:
        if not trial.counts().get("ready"):  # what is claimed may wait behind others: more for slots that are free
            longer.update(trial.enqueue_held([f"more{len(longer)}"], gate))
        return len(running()) == 2 * fleet.slots

    until(is_full, "a run in every slot")
    return running()


def works_in(trial: Trial, fleet: Fleet, processes: int, since: int = 0) -> bool:
    """Say whether so many processes of a fleet have begun to work since a time; if not, give them something to do."""
    trial.until_left(0)
    if len({mark.pid for mark in trial.tail.marks if mark.fleet == fleet.pid and mark.at > since}) >= processes:
        return True
    trial.enqueue(f"l{n}" for n in range(50))
    return False


def claims_of(trial: Trial, running: list[Mark]) -> int:
    """Return how many claims the workers have that run these."""
    ids = {mark.id for mark in running}
    claimed = trial.app.inspect.jobs("running", limit=1000)
    workers = {job.worker for job in claimed if job.id in ids}
    return sum(job.worker in workers for job in claimed)


def test_a_fleet_that_was_frozen_changes_nothing_when_it_wakes(hasty: Trial) -> None:
    freeze_by_turns(hasty, rounds=2)


@pytest.mark.soak
@only_in_soak
def test_fleets_that_are_frozen_by_turns_for_long(hasty: Trial) -> None:
    freeze_by_turns(hasty, rounds=40)
