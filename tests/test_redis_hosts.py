"""Fleets on several hosts: one vanishes, one is cut off and comes back, and their clocks are an hour apart.

Hosts are namespaces (see `hosts`), so these tests need root. Every test of jobs ends in `Trial.finish`: nothing lost, no repeat
that a fault does not explain, no lane with two runs but for stale code that nobody can stop.

FLEET_SEEDS=1,2,3 chooses other chances than the usual ones.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import host_jobs
from conftest import SOAK
from fleet_evidence import SECOND, Mark
from fleetbench import Trial, tell
from hosts import HostFleet, Site, open_site
from test_fleet_kill import SEEDS, Portions, kill_somebody
from workbench import SOON, until

only_in_soak = pytest.mark.skipif(not SOAK, reason="only with make soak")

#: What an observer may take beyond the limit, and a worker to begin then, seconds.
A_LITTLE = SOON


class Note(NamedTuple):
    """What a job wrote down."""

    what: str
    id: str
    token: int
    host: str
    at: int  #: monotonic
    clock: int  #: by the host's own clock


def notes(site: Site, what: str) -> list[Note]:
    """Return the notes of this kind so far."""
    path = Path(site.trial.environment["FLEET_NOTES"])
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Note(name, id_, *(int(token), host), *map(int, times)) for name, id_, token, host, *times in lines if name == what]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two hosts; who is silent for 2 s is taken for dead."""
    with open_site(tmp_path, host_jobs.__file__) as made:
        yield prepared(made)


def prepared(site: Site) -> Site:
    site.trial.environment["FLEET_NOTES"] = str(site.trial.folder / "notes")
    return site


def marks_on(fleet: HostFleet, marks: list[Mark]) -> list[Mark]:
    return [mark for mark in marks if mark.fleet == fleet.session]


def until_known(site: Site, number: int) -> None:
    """Wait until so many workers are known to the store."""
    until(lambda: len(site.trial.app.inspect.workers()) == number, f"{number} workers")


def until_beaten(trial: Trial, ids: set[str]) -> None:
    """Wait for another beat of each of these workers."""

    def beats() -> dict[str, object]:
        return {worker.id: worker.last_beat for worker in trial.app.inspect.workers() if worker.id in ids}

    before = beats()
    until(lambda: all(beats().get(id_) not in (None, before.get(id_)) for id_ in ids), "a beat of each")


def until_working(site: Site, fleet: HostFleet, workers: int = 1) -> float:
    """Give a fleet work until so many of its workers have begun some; return after how many seconds the first did."""
    trial, since = site.trial, time.monotonic_ns()

    def begun() -> list[Mark]:
        trial.tail.look()
        return [mark for mark in marks_on(fleet, trial.tail.marks) if mark.what == "start" and mark.at > since]

    def works() -> bool:
        if len({mark.worker for mark in begun()}) < workers:
            trial.enqueue([f"w{n}" for n in range(10)], 0.02)
        return len({mark.worker for mark in begun()}) >= workers

    until(works, f"work on {fleet.host.name}")
    return (begun()[0].at - since) / SECOND


# -- a host vanishes -----------------------------------------------------------------------------------------------


def lose_a_host(site: Site, *, kill: bool, within: float) -> None:
    trial, (one, other) = site.trial, site.hosts
    lost, gate = site.start(one), trial.folder / "gate"
    lanes = [f"l{n}" for n in range(6)]
    held = trial.enqueue_held(lanes, gate)
    trial.until_running(held)
    trial.enqueue(lanes * 3)
    heir = site.start(other)
    until_known(site, 4)

    fault = site.vanish(lost, kill=kill)
    again = trial.until_running(held, fault.since)
    if not kill:
        site.switch_off(lost, fault.pids, time.monotonic_ns())  # it never wakes up
    gate.touch()
    verdict = trial.finish(heir)

    seconds = sorted((mark.at - fault.since) / SECOND for mark in again)
    tell(f"a host that vanished ({fault.what}): its jobs ran again after {seconds[0]:.3f} to {seconds[-1]:.3f} s")
    assert {mark.fleet for mark in again} == {heir.session}
    assert len(verdict.repeats) == len(held)
    assert {run.start.attempt for run in verdict.runs} == {1}, "a lost host is not charged"
    assert trial.dead_after - 2 * site.beat < seconds[0]
    assert seconds[-1] < within


def test_what_a_host_that_vanishes_had_is_recovered_by_another(site: Site) -> None:
    lose_a_host(site, kill=True, within=site.trial.dead_after + A_LITTLE)


@pytest.mark.soak
@only_in_soak
def test_what_a_host_that_is_frozen_and_cut_off_had_is_recovered_by_another(site: Site) -> None:
    lose_a_host(site, kill=False, within=site.trial.dead_after + A_LITTLE)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "frozen"])
def test_what_a_host_that_vanishes_had_is_recovered_within_20_s_by_default(tmp_path: Path, kill: bool) -> None:
    with open_site(tmp_path, host_jobs.__file__, dead_after=15.0, beat=3.0) as site:
        lose_a_host(prepared(site), kill=kill, within=20.0)


# -- a host is cut off ---------------------------------------------------------------------------------------------


def test_a_fleet_that_was_cut_off_changes_nothing_when_it_comes_back(site: Site) -> None:
    """Three of its runs end while it is cut off, three go on until they are told to stop. All ran again elsewhere."""
    trial, (one, other) = site.trial, site.hosts
    tasks, gates = host_jobs.declare(trial.app), [trial.folder / "gate0", trial.folder / "gate1"]
    stale = site.start(one)
    lanes = [f"l{n}" for n in range(6)]
    held = trial.push(lanes, lambda id_, lane, seq: tasks.watch.using(id=id_).bind(lane, seq, str(gates[int(lane[1:]) % 2])))
    running = trial.until_running(held)
    trial.enqueue(lanes * 3)
    heir = site.start(other)
    until_known(site, 4)

    with site.cut_off(stale):
        since = time.monotonic_ns()
        again = trial.until_running(held, since)
        gates[0].touch()
        until(lambda: len({mark.id for mark in marks_on(stale, trial.tail.running())}) == 3, "three ends on the host")
        mended = time.monotonic_ns()
    until(lambda: len(notes(site, "told")) == 3, "three runs that are told to stop")
    told = max(note.at for note in notes(site, "told"))
    assert marks_on(heir, trial.tail.running()), "who runs them now is not told to stop"
    gates[1].touch()
    worked = until_working(site, stale)
    verdict = trial.finish(stale, heir)

    refused = trial.app.store_inspect.totals()["refused"]
    seconds = sorted((mark.at - since) / SECOND for mark in again)
    tell(
        f"cut off: its jobs ran again after {seconds[0]:.3f} to {seconds[-1]:.3f} s; back: told to stop after "
        f"{(told - mended) / SECOND:.3f} s, worked again {worked:.3f} s later; {refused} outcomes were refused"
    )
    assert {mark.fleet for mark in again} == {heir.session}
    assert {note.token for note in notes(site, "told")} < {mark.token for mark in running}
    assert len(verdict.repeats) == len(held)
    assert refused == len(held)
    assert seconds[-1] < trial.dead_after + A_LITTLE


#: Loaded by Python itself when it starts: a supervisor says nothing as long as there is a file.
SILENT_SUPERVISOR = """
import os, threading, time
from laneway.store.redis.store import RedisStore

beat = RedisStore.beat

def silently(store, workers):
    while threading.current_thread().name == "laneway-store" and os.path.exists(os.environ["FLEET_SILENCE"]):
        time.sleep(0.01)
    return beat(store, workers)

RedisStore.beat = silently
"""


def test_what_a_fleet_claims_as_it_comes_back_is_not_lost_when_it_hears_that_it_was_taken_for_dead(site: Site) -> None:
    """Its workers may reach the store before its supervisor does. What they claim then is theirs."""
    trial, (one, other) = site.trial, site.hosts
    tasks, gate, silence = host_jobs.declare(trial.app), trial.folder / "gate", trial.folder / "silence"
    (trial.folder / "sitecustomize.py").write_text(SILENT_SUPERVISOR)
    path = os.pathsep.join([str(trial.folder), trial.environment.get("PYTHONPATH", "")])
    fleet = site.start(one, PYTHONPATH=path, FLEET_SILENCE=str(silence))
    until_known(site, 2)
    busy = site.start(other)
    until_known(site, 4)
    ours = workers_of(trial, fleet)
    begun: list[Mark] = []

    def claims_first() -> None:
        over = time.monotonic() + 10  # or it waits for its supervisor, which would do as well
        while not begun and time.monotonic() < over:
            trial.tail.look()
            begun[:] = [mark for mark in marks_on(fleet, trial.tail.marks) if mark.id in new]
            time.sleep(0.002)
        silence.unlink()

    silence.touch()  # before: a beat on its way would arrive when the cable is mended
    with site.cut_off(fleet, claims_first):
        held = trial.enqueue_held([f"l{n}" for n in range(6)], gate)
        trial.until_running(held)  # so that the other host has no room
        until(lambda: ours.isdisjoint(worker.id for worker in trial.app.inspect.workers()), "the deaths of its workers")
        lanes = (f"n{n}" for n in range(6))
        new = trial.push(lanes, lambda id_, lane, seq: tasks.ahold.using(id=id_).bind(lane, seq, str(gate)))
    for _ in range(2):
        until_beaten(trial, ours)
    gate.touch()  # by now its workers have heard what their supervisor has
    verdict = trial.finish(fleet, busy)
    tell(f"{len(begun)} jobs had begun before its supervisor came back; {len(verdict.repeats)} ran again")


@pytest.mark.soak
@only_in_soak
def test_hosts_that_miss_the_server_take_nobody_for_dead(site: Site) -> None:
    """It is away for longer than the limit. Time in which an observer could not look is held against nobody."""
    trial, gate = site.trial, site.trial.folder / "gate"
    fleets = [site.start(host) for host in site.hosts]
    until_known(site, 4)
    trial.until_running(trial.enqueue_held([f"l{n}" for n in range(10)], gate))
    trial.enqueue([f"l{n}" for n in range(10)] * 5)

    site.server.stop(kill=True)
    until_over = time.monotonic() + 1.25 * trial.dead_after
    until(lambda: time.monotonic() > until_over, "the end of its absence")
    site.server.start()
    returned = time.monotonic_ns()
    gate.touch()
    verdict = trial.finish(*fleets)

    first = min(mark.at for mark in trial.tail.marks if mark.what == "start" and mark.at > returned)
    tell(f"a server that was away for {1.25 * trial.dead_after:g} s: the first claim {(first - returned) / SECOND:.3f} s later")
    assert not verdict.repeats
    assert (first - returned) / SECOND < 2.0
    assert trial.app.store_inspect.totals()["recovered"] == 0


#: Enqueues twice on each line it is given, with a connection that it had, if any, and says how long each took and what it heard.
ENQUEUES = """
import os, sys, time
from laneway import App
from laneway.errors import StoreUnavailable

app = App(os.environ["FLEET_STORE"])
for _ in sys.stdin:
    for _ in range(2):
        since = time.monotonic()
        try:
            app.enqueue("nobody.knows", check=False)
            said = "accepted"
        except StoreUnavailable as error:
            said = repr(str(error))
        print(f"{time.monotonic() - since:.3f} {said}", flush=True)
"""


def test_an_enqueue_on_a_host_that_is_cut_off_fails_soon_and_later_works_again(site: Site) -> None:
    host = site.hosts[0]
    environment = {**site.trial.environment, "FLEET_STORE": site.url(host)}
    producer = subprocess.Popen(
        [*host.inside, sys.executable, "-c", ENQUEUES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )

    def enqueue() -> list[tuple[float, str]]:
        assert producer.stdin is not None
        assert producer.stdout is not None
        producer.stdin.write("\n")
        producer.stdin.flush()
        said = [producer.stdout.readline().rstrip("\n").partition(" ") for _ in range(2)]
        return [(float(seconds), text) for seconds, _, text in said]

    with producer:
        try:
            assert [text for _, text in enqueue()] == ["accepted"] * 2
            host.cut()
            cut = enqueue()
            host.mend()
            back = enqueue()
        finally:
            producer.kill()
    tell(f"cut off, an enqueue fails after {', '.join(f'{seconds:.3f} s ({said})' for seconds, said in cut)}; back: {back}")
    # What was on its way when the answer was given up may arrive after all: who enqueues again under another id has it twice.
    accepted = site.trial.counts()
    tell(f"the store has {accepted}, and 4 were said to be accepted")
    assert sum(accepted.values()) in (4, 5)
    assert all(seconds < SOON and "the store redis://" in said and "\\n" not in said for seconds, said in cut)
    assert back[-1][1] == "accepted"


# -- clocks --------------------------------------------------------------------------------------------------------

#: Loaded by Python itself when it starts: lets this process live at another time.
OTHER_TIME = """
import datetime, os, time

shift = int(os.environ.get("CLOCK_SHIFT", "0"))
real_time, real_time_ns, real = time.time, time.time_ns, datetime.datetime
time.time = lambda: real_time() + shift
time.time_ns = lambda: real_time_ns() + shift * 10**9


class Shifted(real):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=shift)

    @classmethod
    def utcnow(cls):
        return real.utcnow() + datetime.timedelta(seconds=shift)


datetime.datetime = Shifted
"""
HOUR = 3600


def ticks_since(site: Site, began: int) -> list[Note]:
    """Return the runs of a schedule of each second since a time."""
    return [note for note in notes(site, "tick") if note.at > began]


def test_clocks_an_hour_apart_change_nothing(site: Site) -> None:
    """Schedules, delays, retries, beats and recovery follow the server's clock, or nobody's."""
    trial, (one, other) = site.trial, site.hosts
    (trial.folder / "sitecustomize.py").write_text(OTHER_TIME)
    path = os.pathsep.join([str(trial.folder), trial.environment.get("PYTHONPATH", "")])
    trial.environment |= {"PYTHONPATH": path, "FLEET_TICKS": "1"}
    tasks = host_jobs.declare(trial.app)
    early = site.start(one, "-q", "default,early", CLOCK_SHIFT=str(-HOUR - 5))
    late = site.start(other, "-q", "default,late", CLOCK_SHIFT=str(HOUR + 5))
    until_known(site, 4)
    began = time.monotonic_ns()

    for queue in ("early", "late"):
        tasks.sends.using(queue=queue).enqueue(f"sent-{queue}", 1.0)
        tasks.fails_once.using(queue=queue).enqueue(f"failing-{queue}")
        tasks.later.using(queue=queue, expires=60).enqueue(f"expiring-{queue}")
        trial.app.enqueue("nobody.knows", check=False)
    names = [f"{what}-{queue}" for what in ("sent", "expiring") for queue in ("early", "late")]
    names += [f"failing-{queue}-2" for queue in ("early", "late")]
    until(lambda: all(notes(site, name) for name in names), "all that was sent")
    until(lambda: len(ticks_since(site, began)) >= 5, "some seconds of beats and ticks")

    for queue, host, shift in (("early", one, -HOUR - 5), ("late", other, HOUR + 5)):
        (before,), (after,) = notes(site, f"before-sent-{queue}"), notes(site, f"after-sent-{queue}")
        (sent,) = notes(site, f"sent-{queue}")
        assert before.host == host.name
        assert abs(before.clock / SECOND - shift - time.time()) < 60, "the host's clock is not shifted: this shows nothing"
        assert (sent.at - before.at) / SECOND >= 1.0
        assert (sent.at - after.at) / SECOND < SOON
        (first,), (second,) = notes(site, f"failing-{queue}-1"), notes(site, f"failing-{queue}-2")
        assert 1.0 <= (second.at - first.at) / SECOND < SOON
        assert len(notes(site, f"expiring-{queue}")) == 1
    ticks, span = ticks_since(site, began), (time.monotonic_ns() - began) / SECOND
    tell(f"{len(ticks)} ticks in {span:.1f} s")
    assert len(ticks) <= 1.5 * span + 2, "each second fires once, and not once on each host"
    assert trial.app.store_inspect.totals()["recovered"] == 0, "somebody was taken for dead"
    workers = trial.app.inspect.workers()
    assert len(workers) == 4
    assert all(worker.beat_age is not None and worker.beat_age < trial.dead_after for worker in workers)
    assert trial.counts().get("dead", 0) == 0, [job.errors for job in trial.app.inspect.jobs("dead")]

    gate = trial.folder / "gate"
    hold = trial.tasks.hold
    handle = hold.using(queue="late").enqueue("l", 0, str(gate))
    late_marks = trial.until_running([handle.id])
    assert marks_on(late, late_marks)
    trial.app.inspect.workers()
    fault = site.vanish(late, kill=True)
    until(lambda: handle.state() == "ready", "the recovery")
    took = (time.monotonic_ns() - fault.since) / SECOND
    tell(f"a host whose clock is an hour ahead vanished: recovered after {took:.3f} s")
    assert trial.dead_after - 2 * site.beat < took < trial.dead_after + A_LITTLE
    assert early.lives


# -- kills and cuts ------------------------------------------------------------------------------------------------


def kill_on_two_hosts(site: Site, seed: int, *, kills: int, cuts: int, jobs: int) -> None:
    """Kill somebody of either fleet at random; now and then one fleet is cut off past the limit, and comes back."""
    trial = site.trial
    portions, rounds = Portions(trial, seed, jobs, kills + cuts), kills + cuts
    chance = portions.chance
    cut_at = set(chance.sample(range(1, rounds), cuts))
    fleets = [site.start(host) for host in site.hosts]
    for number in range(rounds):
        victim = chance.randrange(2)
        fleets[victim].until_started()  # one whose zygote dies before it has loaded the app ends by itself
        portions.next()
        if number in cut_at:
            cut_and_kill(site, fleets, victim, portions)
        else:
            kill_somebody(fleets[victim], chance)
        for n, fleet in enumerate(fleets):
            if not fleet.lives:
                fleet.assert_gone()
                fleets[n] = site.start(site.hosts[n])
        if not trial.left:
            portions.next()  # a fault when all is done would show nothing
    verdict = trial.finish(*fleets)
    assert len(trial.jobs) >= jobs
    assert verdict.repeats, "no fault met a job: this showed nothing"


def cut_and_kill(site: Site, fleets: list[HostFleet], victim: int, portions: Portions) -> None:
    """Cut a fleet off in the middle of work until it was taken for dead; meanwhile somebody of the other one is killed."""
    trial, fleet, other = site.trial, fleets[victim], fleets[1 - victim]
    until(lambda: len(workers_of(trial, fleet)) == 2, "its workers")
    other.until_started()
    ours = workers_of(trial, fleet)
    trial.enqueue((f"l{n}" for n in range(30)), 0.3)
    until_working(site, fleet, workers=2)  # one that is still starting would not be told that it was taken for dead
    with site.cut_off(fleet):
        kill_somebody_else(other, portions.chance)
        until(lambda: ours.isdisjoint(worker.id for worker in trial.app.inspect.workers()), "the deaths of its workers")
        portions.next()


def kill_somebody_else(fleet: HostFleet, chance: random.Random) -> None:
    """Kill a worker or the zygote: somebody must be left to see who is dead."""
    role = chance.choice(("worker", "zygote"))
    there = fleet.of_role(role)
    if there:
        fleet.kill(role, *there[:1])


def workers_of(trial: Trial, fleet: HostFleet) -> set[str]:
    """Return the ids of a fleet's workers that the store knows."""
    pids = fleet.names()
    return {worker.id for worker in trial.app.inspect.workers() if worker.host == fleet.host.name and worker.pid in pids}


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_on_two_hosts_of_which_one_is_cut_off_and_back(site: Site, seed: int) -> None:
    kill_on_two_hosts(site, seed, kills=3, cuts=1, jobs=500)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_on_two_hosts_and_cuts_for_long(site: Site, seed: int) -> None:
    kill_on_two_hosts(site, seed, kills=80, cuts=20, jobs=25_000)
