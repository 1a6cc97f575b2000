"""Collectors under fire: fleets are killed while payloads come, lanes fail, and evidence is written outside the store.

One producer enqueues into 1,000 lanes of two collectors, often into a few hot ones, often the same payloads, one by one and many
at once, while several fleets collect and are killed at random. Then `collect_evidence.check` follows every lane through the table
of DESIGN section 7: never two runs at once, payloads in the order of their scores, all handled or dead, none swallowed.

COLLECT_SEEDS=1,2,3 chooses other chances than the usual ones.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

import collect_jobs
from collect_evidence import RECORD, Findings, Sent, check, key, read
from collect_jobs import HOT
from conftest import SOAK
from fleet_evidence import Fault, Mark
from fleetbench import Fleet, Trial, figures, open_trial, tell
from workbench import DEADLINE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and adopts orphans")

LANES = 1_000
#: In every so manieth lane there are payloads that always fail.
ILL = 20
FLEETS = 3
SLOTS = 3
SEEDS = [int(seed) for seed in os.environ.get("COLLECT_SEEDS", "1").split(",")]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, program=collect_jobs.__file__) as made:
        yield made


class Item(NamedTuple):
    """A payload to enqueue."""

    lane: str
    body: int | None  #: None: left out
    score: float | None
    run_after: float | None

    def call(self) -> tuple[object, ...]:
        """Return it as `enqueue_many` takes it."""
        if self.body is None and self.score is None and self.run_after is None:
            return (self.lane,)
        return self.lane, self.body, self.score, self.run_after


class Producer:
    """Enqueues payloads by chance, in a thread of its own, and notes each."""

    def __init__(self, trial: Trial, seed: int) -> None:
        self.sent: list[Sent] = []
        self._chance = random.Random(f"producer {seed}")  # noqa: S311 - chance that can be had again
        self._collectors = collect_jobs.declare(trial.app)
        self._line: list[str] = []
        self._thread = ThreadPoolExecutor(1)

    def send(self, number: int) -> Future[None]:
        """Begin to enqueue so many payloads."""
        return self._thread.submit(self._send, number)

    def send_equal(self, lanes: Iterable[str]) -> Future[None]:
        """Begin to enqueue one payload of each kind into each of these lanes: the same ones each time."""
        return self._thread.submit(self._send_equal, [Item(lane, body, 0.0, None) for lane in lanes for body in range(5)])

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _send(self, number: int) -> None:
        chance, end = self._chance, len(self.sent) + number
        while len(self.sent) < end:
            name = chance.choice(("many", "many", "some"))
            if chance.random() < 0.6:
                self._one(name)
            else:
                self._several(name, min(chance.randint(2, 20), end - len(self.sent)))
            time.sleep(chance.uniform(0, 0.003))  # so that enqueues and runs meet at any moment

    def _one(self, name: str) -> None:
        item, collector = self._item(name), getattr(self._collectors, name)
        using = collector if item.run_after is None else collector.using(run_after=item.run_after)
        called = time.monotonic_ns()
        if item.body is None:
            using.enqueue(item.lane, score=item.score)
        else:
            using.enqueue(item.lane, item.body, score=item.score)
        self._note(name, [item], called)

    def _several(self, name: str, number: int) -> None:
        self._at_once(name, [self._item(name, left_out=False) for _ in range(number)])

    def _send_equal(self, items: list[Item]) -> None:
        self._at_once("many", items)

    def _at_once(self, name: str, items: list[Item]) -> None:
        called = time.monotonic_ns()
        accepted = getattr(self._collectors, name).enqueue_many([item.call() for item in items], chunk=7)
        self._note(name, items, called)
        assert accepted == len(items)

    def _note(self, name: str, items: list[Item], called: int) -> None:
        returned = time.monotonic_ns()
        for item in items:
            body = "-" if item.body is None else str(item.body)
            after = round((item.run_after or 0) * 1e9)
            self.sent.append(Sent(key(name, item.lane), body, item.score, called, returned, after))

    def _item(self, name: str, *, left_out: bool = True) -> Item:
        chance = self._chance
        lane = self._lane()
        if left_out and chance.random() < 0.05:
            body = None
        elif int(lane[1:]) % ILL == 0 and chance.random() < 0.1:
            body = collect_jobs.POISON
        else:
            body = chance.randrange(5)
        score = float(chance.randrange(4)) if name == "many" else None
        return Item(lane, body, score, chance.uniform(0, 0.03) if chance.random() < 0.2 else None)

    def _lane(self) -> str:
        """Return a hot lane, or the next of all in a random order."""
        if self._chance.random() < 1 / 3:
            return self._chance.choice(sorted(HOT))
        if not self._line:
            self._line = [f"l{n}" for n in range(LANES)]
            self._chance.shuffle(self._line)
        return self._line.pop()


# -- the trial ---------------------------------------------------------------------------------------------------


def collect_at_random(trial: Trial, seed: int, *, kills: int, payloads: int) -> None:
    chance = random.Random(f"killer {seed}")  # noqa: S311
    trial.environment["COLLECT_SEED"] = str(seed)
    producer = Producer(trial, seed)
    fleets = [start(trial) for _ in range(FLEETS)]
    shown, portion = 0, -(-payloads // kills)
    try:
        while shown < kills:
            victim = chance.randrange(FLEETS)
            if chance.random() < 0.9:
                fleets[victim].until_started()
            sending = producer.send(portion)
            until_some_ran(trial, sending, chance.randint(portion // 10, portion))
            kill_somebody(fleets[victim], chance)
            shown += bool(active(trial)) or not sending.done()  # else all was done, and the kill shows nothing
            sending.result(DEADLINE)
            if not fleets[victim].lives:
                fleets[victim].assert_gone()
                fleets[victim] = start(trial)
        meet(trial, fleets, producer)
    finally:
        producer.close()
    finish(trial, fleets)
    judge(trial, producer.sent)
    assert len(producer.sent) >= payloads
    assert len({one.key.partition("/")[2] for one in producer.sent}) > LANES / 2


def meet(trial: Trial, fleets: list[Fleet], producer: Producer) -> None:
    """Let payloads come during runs with equal ones, and a kill meet one of these runs.

    How often that happens by chance depends on what else the machine does.
    """
    hot = {key("many", lane): lane for lane in HOT}
    hold = Path(f"{trial.tail.path}.hold")
    hold.touch()

    def held() -> list[Mark]:
        return [one.mark for one in read(trial.tail.path) if one.said == "held" and one.mark.id in hot]

    try:
        producer.send_equal(hot.values()).result(DEADLINE)
        until(held, "a run of a hot lane")
        running = held()
        producer.send_equal({hot[mark.id] for mark in running}).result(DEADLINE)
        [fleet] = [fleet for fleet in fleets if fleet.session == running[0].fleet]
        fleet.kill("worker", running[0].pid)
    finally:
        hold.unlink()


def start(trial: Trial) -> Fleet:
    return trial.start(processes=2, slots=SLOTS)


def kill_somebody(fleet: Fleet, chance: random.Random) -> Fault:
    """Kill somebody of a fleet. Who is meant may not be there, if the fleet has just begun: then the whole fleet."""
    role = chance.choice(("worker", "worker", "zygote", "supervisor", "fleet"))
    there = [] if role == "fleet" else fleet.of_role(role)
    if not there:
        role, there = "fleet", [p.pid for p in fleet.members()]
    number = chance.randint(1, len(there)) if role == "worker" else len(there)
    return fleet.kill(role, *chance.sample(there, number))


def active(trial: Trial) -> int:
    """Return how many lanes have something to do."""
    return sum(number for state, number in trial.counts().items() if state != "dead")


def until_some_ran(trial: Trial, sending: Future[None], number: int) -> None:
    """Wait until so many more runs of lanes have begun or ended, or nothing is left to do."""

    def size() -> int:
        return trial.tail.path.stat().st_size if trial.tail.path.exists() else 0

    enough = size() + number * RECORD
    until(lambda: size() >= enough or (sending.done() and not active(trial)), "some runs")


def finish(trial: Trial, fleets: list[Fleet]) -> None:
    """Let everything end, and stop the fleets. Only standing still is a failure."""
    least, deadline = sys.maxsize, 0.0
    while left := active(trial):
        if left < least:
            least, deadline = left, time.monotonic() + DEADLINE
        assert time.monotonic() < deadline, f"{left} lanes are not done and nothing moves: {trial.counts()}"
        time.sleep(0.005)
    for fleet in fleets:
        fleet.until_started()
        fleet.stop()
    for fleet in trial.fleets:
        fleet.assert_gone()


def judge(trial: Trial, sent: list[Sent]) -> Findings:
    """Check evidence and store."""
    dead = dead_ones(trial)
    found = check(sent, read(trial.tail.path), trial.faults, dead, collect_jobs.RULES, SLOTS)
    totals = trial.app.store_inspect.totals()
    crashed = totals.get("crashed", 0)
    tell(figures(found, trial.faults, totals))
    ended = [repeat.fault.since - repeat.run.end.at for repeat in found.repeats if repeat.run.end is not None]
    tell(
        f"{len(sent)} payloads, {found.during} of them during a run with an equal one; {len(found.tokens)} runs of "
        f"{len(found.runs)} lanes, {found.cut} lanes cut, {found.died} payloads dead; {len(trial.faults)} kills, "
        f"crashed {crashed}, cancelled {totals['cancelled']}, failed {totals['failed']}; "
        f"{len(ended)} repeats had ended, at most {max(ended, default=0) / 1e6:.0f} ms before the kill; "
        f"the model had {found.widest} ways at most"
    )
    assert not surprises(trial), "workers ended that nobody killed"
    assert not found.mistakes, f"{len(found.mistakes)} mistakes:\n" + "\n".join(found.mistakes[:20])
    assert trial.counts() == {"dead": len(dead)}
    least, most = found.done
    assert least <= totals["processed"] <= most
    assert totals["enqueued"] == len(sent)
    assert len(sent) == totals["processed"] + totals["cancelled"] + totals["merged"] + len(dead)
    assert totals["recovered"] >= found.cut
    assert totals["refused"] == 0
    assert crashed <= sum(len(fault.pids) for fault in trial.faults)
    assert found.repeats, "no kill met a run: this showed nothing"
    assert found.during > len(sent) // 1000, "hardly anything came during a run: this showed nothing"
    assert found.died, "nothing died: this showed nothing"
    return found


def surprises(trial: Trial) -> list[str]:
    """Return what the fleets said about ends that were not ours."""
    said = [line for fleet in trial.fleets for line in fleet.log.read_text(errors="replace").splitlines()]
    return [line for line in said if "ended with" in line and "SIGKILL" not in line and "ended with its zygote" not in line]


def dead_ones(trial: Trial) -> list[tuple[str, str]]:
    """Return the dead payloads, as lane and payload."""
    found: list[tuple[str, str]] = []
    after: str | None = None
    while True:
        page = trial.app.inspect.jobs("dead", limit=1000, after=after)
        found += [(key(one.queue, str(one.lane)), str(one.args[0]) if one.args else "-") for one in page]
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_are_collected_in_order_and_nothing_is_swallowed_whatever_is_killed(trial: Trial, seed: int) -> None:
    collect_at_random(trial, seed, kills=4, payloads=1_100)


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="only with make soak")
@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_are_collected_in_order_for_long(trial: Trial, seed: int) -> None:
    collect_at_random(trial, seed, kills=200, payloads=100_000)
