"""Collectors as a small program: the table of the contract and nothing else.

Written from the table, not from the store: a lane is an object with payloads that wait, and, while it runs, payloads that run.
`Ledger` knows no rules: it writes down what was pushed and what became of it, and says when something was lost, doubled, too
early or too often. `rules` are the ones in force; a test takes each away and shows that the ledger notices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

RULES = frozenset({
    "what comes during a run is kept apart",
    "the first to arrive dies",  # whatever its score
    "the rest of the run goes on",  # when one of it dies
    "equal payloads are one",
    "the larger score counts",
    "the earlier arrival counts",
    "the failed one's due time",  # not that of what gathered
    "the failed one's attempts",
    "what came with a request goes, and what comes later stays",  # cancel, delete, kill of a lane that runs
    "a suspect runs alone",
    "tokens",
    "time never goes back",
    "unheard claims go back",  # after a lost answer
})  # fmt: skip

Key = tuple[str, str]  # queue, lane


class Place(NamedTuple):
    """Where a payload stands among those of its lane."""

    score: float
    arrival: int


class Pushed(NamedTuple):
    """A push, as the ledger knows it."""

    number: int
    place: Place


def _merged(pushes: Sequence[Pushed]) -> Place:
    """Say where equal payloads belong that are one."""
    return Place(max(push.place.score for push in pushes), min(push.place.arrival for push in pushes))


class Held(NamedTuple):
    """One lane of a claim, as the worker hears of it."""

    key: Key
    payloads: tuple[tuple[str, float], ...]  # the oldest first
    attempt: int
    since: int
    due: int


class Run(NamedTuple):
    """A claim: some lanes with one token."""

    token: int
    lanes: tuple[Held, ...]
    lost: str


@dataclass
class Lane:
    key: Key
    number: int
    due: int
    since: int
    waits: dict[str, Place] = field(default_factory=dict)  # what waits, or gathers while it runs
    runs: dict[str, Place] | None = None  # what runs
    failed: bool = False
    attempt: int = 0
    worker: str | None = None
    token: int | None = None
    mark: str | None = None
    lost: str = ""
    next_due: int = 0
    next_since: int = 0


@dataclass
class Corpse:
    number: int
    score: float
    died: int
    attempt: int


@dataclass
class Ledger:
    """What was pushed and what became of it, whatever the rules."""

    number: int = 0  # of pushes and deaths
    owed: dict[Key, dict[str, list[Pushed]]] = field(default_factory=dict)  # payload → its pushes
    given: dict[tuple[Key, int], tuple[int, set[str]]] = field(default_factory=dict)  # at a claim: the last push, what it got
    dead: dict[tuple[Key, str], Place] = field(default_factory=dict)  # with the number of the death
    fails: Counter[Key] = field(default_factory=Counter)
    not_before: dict[Key, int] = field(default_factory=dict)

    def push(self, key: Key, body: str, score: float, arrival: int | None = None) -> None:
        self.number += 1
        place = Place(score, arrival or self.number)
        self.owed.setdefault(key, {}).setdefault(body, []).append(Pushed(self.number, place))

    def place(self, key: Key, body: str, token: int | None = None) -> Place:
        """Say where a payload belongs: all of it, or what of it is in a run."""
        return _merged([push for push in self.owed[key][body] if token is None or self.runs(key, token, body, push.number)])

    def claim(self, held: Held, token: int, now: int) -> None:
        owed = self.owed.get(held.key, {})
        bodies = [body for body, _ in held.payloads]
        assert len(set(bodies)) == len(bodies), "doubled"
        for body, score in held.payloads:
            assert owed.get(body), "run though nobody asked for it any more"
            assert score == self.place(held.key, body).score, "out of place"
        assert bodies == sorted(bodies, key=lambda body: self.place(held.key, body)), "out of order"
        assert held.attempt == self.fails[held.key] + 1, "more attempts than it may have"
        assert now >= self.not_before.get(held.key, 0), "too early"
        self.given[held.key, token] = (self.number, set(bodies))

    def runs(self, key: Key, token: int | None, body: str, number: int) -> bool:
        """Say whether a push is in a run: it came before, and the run was given it."""
        last, bodies = self.given[key, token] if token is not None else (0, set[str]())
        return number <= last and body in bodies

    def end(self, key: Key, token: int, bodies: Collection[str], *, die: bool = False) -> None:
        """These of a run are settled: what was pushed before it is no longer owed."""
        for body in bodies:
            pushes = self.owed[key].get(body, [])
            self.owed[key][body] = [push for push in pushes if not self.runs(key, token, body, push.number)]
            if die:
                self._bury(key, body, [push for push in pushes if self.runs(key, token, body, push.number)])

    def die(self, key: Key, token: int, bodies: Sequence[str], run: Collection[str], *, named: bool) -> None:
        """These of a run die: those that somebody named, or the one that was pushed before all others of the run."""
        first = min(run, key=lambda body: self.place(key, body, token).arrival)
        assert named or list(bodies) == [first], "another than the first to arrive died"
        self.end(key, token, bodies, die=True)

    def _bury(self, key: Key, body: str, pushes: list[Pushed]) -> None:
        self.number += 1
        known = self.dead.get((key, body), Place(-math.inf, self.number))
        self.dead[key, body] = Place(max(known.score, _merged(pushes).score), known.arrival)

    def replay(self, key: Key, body: str) -> None:
        """It is owed again, and counts as arrived when it died."""
        self.push(key, body, *self.dead.pop((key, body)))

    def drop(self, key: Key, token: int | None, *, kill: bool, only: str | None = None) -> None:
        """What does not run is no longer owed: all of a lane, or one payload."""
        gone = {
            body: [push for push in pushes if not self.runs(key, token, body, push.number)]
            for body, pushes in self.owed.get(key, {}).items()
            if only in (None, body)
        }
        there = [body for body, pushes in gone.items() if pushes]
        for body in sorted(there, key=lambda body: _merged(gone[body])):
            if kill:
                self._bury(key, body, gone[body])
            self.owed[key][body] = [push for push in self.owed[key][body] if push not in gone[body]]

    def anew(self, key: Key) -> None:
        self.fails[key] = 0
        self.not_before.pop(key, None)


@dataclass
class Model:
    rules: frozenset[str] = RULES
    clock: int = 1_000_000_000
    now: int = 1_000_000_000
    number: int = 0  # of arrivals, lanes and dead ones
    token: int = 0
    score: float = 0.0
    lanes: dict[Key, Lane] = field(default_factory=dict)
    dead: dict[tuple[Key, str], Corpse] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    dropped: int = 0  # payloads that were deleted by hand
    ledger: Ledger = field(default_factory=Ledger)

    def begin(self) -> None:
        """Every verb first looks at the clock."""
        before = self.now
        self.now = max(self.now, self.clock) if "time never goes back" in self.rules else self.clock
        assert self.now >= before, "time went back"

    def count(self) -> int:
        self.number += 1
        return self.number

    # -- pushing ---------------------------------------------------------------------------------------------

    def push(self, key: Key, body: str, score: float | None, delay: int, quiet: int, longest: int) -> None:
        if score is None:
            score = self.score = max(self.now / 1_000_000, math.nextafter(self.score, math.inf))
        self.ledger.push(key, body, score)
        self.totals["enqueued"] += 1
        given = self.now + delay
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key, self.count(), given, self.now)
        elif lane.runs is not None and not lane.waits:
            lane.next_due, lane.next_since = given, self.now
        if quiet and not delay:
            until = self.now + quiet
            if lane.runs is not None:
                lane.next_due = max(lane.next_due, min(until, lane.next_since + longest) if longest else until)
            elif not lane.attempt:
                lane.due = max(lane.due, min(until, lane.since + longest) if longest else until)
        apart = lane.runs is None or "what comes during a run is kept apart" in self.rules
        self.join(lane.waits if apart or lane.runs is None else lane.runs, body, Place(score, self.count()))

    def join(self, payloads: dict[str, Place], body: str, place: Place) -> None:
        """The one rule of merging."""
        known = payloads.get(body)
        if known is None:
            payloads[body] = place
        elif "equal payloads are one" not in self.rules:
            payloads[f"{body} again"] = place
        else:
            score = max if "the larger score counts" in self.rules else min
            arrival = min if "the earlier arrival counts" in self.rules else max
            payloads[body] = Place(score(known.score, place.score), arrival(known.arrival, place.arrival))
            self.totals["merged"] += 1

    # -- claiming --------------------------------------------------------------------------------------------

    def claim(self, worker: str, wants: Sequence[tuple[str, int, int, int]], limit: int, told: Sequence[Key] = ()) -> list[Run]:
        """Claim due lanes, the oldest first; of those that are due at the same time, in the order that was told."""
        runs: list[Run] = []
        rank = {key: number for number, key in enumerate(told)}
        for queue, most, lanes, payloads in wants:
            due = [lane for lane in self.lanes.values() if lane.key[0] == queue and lane.runs is None and lane.due <= self.now]
            due.sort(key=lambda lane: (lane.due, rank.get(lane.key, len(rank)), lane.key))
            taken = 0
            while due and taken < most and len(runs) < limit:
                together = [due.pop(0)]
                while due and len(together) < lanes and not (self.suspect(together[0]) or self.suspect(due[0])):
                    together.append(due.pop(0))
                runs.append(self.take(worker, together, payloads))
                taken += 1
        return runs

    def suspect(self, lane: Lane) -> bool:
        return bool(lane.lost) and "a suspect runs alone" in self.rules

    def take(self, worker: str, lanes: list[Lane], most: int) -> Run:
        self.token += 1
        assert len(lanes) == 1 or not any(lane.lost for lane in lanes), "a suspect beside others"
        held: list[Held] = []
        for lane in lanes:
            lane.worker, lane.token = worker, self.token
            order = sorted(lane.waits.items(), key=lambda item: item[1])
            chosen = order[:most] if most else order
            lane.runs, lane.waits = dict(chosen), dict(order[len(chosen) :])
            if lane.waits:
                lane.next_due, lane.next_since = self.now, lane.since
            given = tuple((body.removesuffix(" again"), place.score) for body, place in chosen)
            held.append(Held(lane.key, given, lane.attempt + 1, lane.since, lane.due))
            self.ledger.claim(held[-1], self.token, self.now)
        return Run(self.token, tuple(held), lanes[0].lost)

    # -- settling --------------------------------------------------------------------------------------------

    def settle(self, worker: str, key: Key, token: int, outcome: str, after: int, named: Sequence[str]) -> bool:
        """Write one lane's outcome; False is a refusal."""
        lane = self.lanes.get(key)
        fits = lane is not None and ((lane.worker, lane.token) == (worker, token) or "tokens" not in self.rules)
        if lane is None or lane.runs is None or not fits:
            self.totals["refused"] += 1
            return False
        assert (lane.worker, lane.token) == (worker, token), "settled by a stranger"
        if outcome == "done":
            self.totals["processed"] += len(lane.runs)
            self.ledger.end(key, token, lane.runs)
            self.go_on(lane)
        elif lane.mark is not None:
            self.end_as_asked(lane)
        elif outcome == "cancelled":
            self.totals["cancelled"] += len(lane.runs)
            self.ledger.end(key, token, lane.runs)
            self.go_on(lane)
        elif outcome == "dead":
            self.totals["failed"] += 1
            self.die(lane, [body for body in dict.fromkeys(named) if body in lane.runs])
        else:
            failed = outcome == "retrying"
            self.totals["failed"] += failed
            self.totals["retried"] += failed
            self.wait_again(lane, self.now + after, failed=failed)
        return True

    def go_on(self, lane: Lane) -> None:
        """What gathered begins to wait."""
        self.ledger.anew(lane.key)
        if not lane.waits:
            del self.lanes[lane.key]
            return
        lane.due, lane.since, lane.attempt, lane.failed = lane.next_due, lane.next_since, 0, False
        self.rest(lane)
        lane.lost = ""

    def rest(self, lane: Lane) -> None:
        lane.runs, lane.worker, lane.token, lane.mark = None, None, None, None

    def wait_again(self, lane: Lane, due: int, *, failed: bool) -> None:
        gathered = bool(lane.waits)
        self.ledger.fails[lane.key] += failed
        self.ledger.not_before[lane.key] = due
        if gathered and "the failed one's due time" not in self.rules:
            due = lane.next_due
        lane.attempt = 0 if gathered and "the failed one's attempts" not in self.rules else lane.attempt + failed
        lane.due, lane.failed, lane.lost = due, failed, ""
        self.merge(lane)

    def merge(self, lane: Lane) -> None:
        """A run's payloads wait again, with what gathered."""
        for body, place in (lane.runs or {}).items():
            self.join(lane.waits, body, place)
        self.rest(lane)

    def die(self, lane: Lane, named: list[str]) -> None:
        assert lane.runs is not None
        everything = dict(lane.runs)
        oldest = min(everything, key=lambda body: everything[body])
        first = min(everything, key=lambda body: everything[body].arrival)
        dying = named or [first if "the first to arrive dies" in self.rules else oldest]
        if "the rest of the run goes on" not in self.rules:
            lane.runs = {}
        self.bury(lane, {body: everything[body] for body in dying}, lane.attempt + 1)
        self.ledger.die(lane.key, lane.token or 0, dying, everything, named=bool(named))
        self.ledger.anew(lane.key)
        for body in dying:
            lane.runs.pop(body, None)
        lane.due, lane.attempt, lane.failed, lane.lost = self.now, 0, False, ""
        self.merge(lane)
        if not lane.waits:
            del self.lanes[lane.key]

    def bury(self, lane: Lane, payloads: Mapping[str, Place], attempt: int) -> None:
        for body, place in payloads.items():
            known = self.dead.get((lane.key, body))
            number = self.count() if known is None else known.number
            score = place.score if known is None else max(known.score, place.score)
            self.dead[lane.key, body] = Corpse(number, score, self.now, attempt)
            self.totals["dead"] += 1
            self.totals["merged"] += known is not None

    def end_as_asked(self, lane: Lane) -> None:
        """The run's payloads do not come back."""
        assert lane.runs is not None
        if lane.mark == "kill":
            self.bury(lane, lane.runs, lane.attempt)
            self.ledger.end(lane.key, lane.token or 0, lane.runs, die=True)
        else:
            self.totals["cancelled"] += len(lane.runs) if lane.mark == "cancel" else 0
            self.dropped += len(lane.runs) if lane.mark == "delete" else 0
            self.ledger.end(lane.key, lane.token or 0, lane.runs)
        self.go_on(lane)

    def give_back(
        self, worker: str, keep: Collection[int] = (), *, died: bool = False, lost: Mapping[int, str] = MappingProxyType({})
    ) -> list[Key]:
        """Take claims back: by the worker itself, or because it died, with words for some of them."""
        self.begin()
        if keep and "unheard claims go back" not in self.rules:
            return []
        mine = [
            lane for lane in self.lanes.values() if lane.runs is not None and lane.worker == worker and lane.token not in keep
        ]
        for lane in mine:
            self.totals["recovered"] += died
            if lane.mark is not None:
                self.end_as_asked(lane)
            else:
                lane.lost = lost.get(lane.token or 0, lane.lost)
                lane.failed = False
                self.merge(lane)
        return sorted(lane.key for lane in mine)

    # -- by hand ---------------------------------------------------------------------------------------------

    def act(self, name: str, key: Key, delay: int) -> bool | None:
        """Do something to a lane; None: there is no such lane."""
        self.begin()
        lane = self.lanes.get(key)
        if lane is None:
            return None
        if name in ("retry", "reschedule"):
            if lane.runs is not None or (name == "retry" and lane.due <= self.now):
                return False
            lane.due = self.now + delay
            lane.failed = lane.failed and name == "reschedule"
            self.ledger.not_before.pop(key, None)
            return True
        self.ask(lane, name)
        return True

    def ask(self, lane: Lane, mark: str) -> None:
        """At once what waits or gathers; what runs when its run is over."""
        self.totals["cancelled"] += len(lane.waits) if mark == "cancel" else 0
        self.dropped += len(lane.waits) if mark == "delete" else 0
        if mark == "kill":
            order = dict(sorted(lane.waits.items(), key=lambda item: item[1]))
            self.bury(lane, order, 0 if lane.runs is not None else lane.attempt)
        if "what came with a request goes, and what comes later stays" not in self.rules and lane.runs is not None:
            lane.mark = mark
            self.ledger.drop(lane.key, lane.token, kill=mark == "kill")
            return
        self.ledger.drop(lane.key, lane.token, kill=mark == "kill")
        lane.waits = {}
        if lane.runs is None:
            del self.lanes[lane.key]
            self.ledger.anew(lane.key)
        else:
            lane.mark = mark

    def act_dead(self, name: str, key: Key, body: str) -> bool | None:
        """Do something to a dead payload; None: there is none."""
        self.begin()
        if (key, body) not in self.dead:
            return None
        if name == "retry":
            self.replay(key, body)
        elif name == "delete":
            del self.dead[key, body]
            self.ledger.dead.pop((key, body))
            self.dropped += 1
        return name in ("retry", "delete")

    def replay(self, key: Key, body: str) -> None:
        corpse = self.dead.pop((key, body))
        self.ledger.replay(key, body)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key, self.count(), self.now, self.now)
        elif lane.runs is None:
            lane.due, lane.attempt, lane.failed = self.now, 0, False
            self.ledger.anew(key)
        else:
            lane.next_since = lane.next_since if lane.waits else self.now
            lane.next_due = self.now
        self.join(lane.waits, body, Place(corpse.score, corpse.number))

    def drop_oldest(self, key: Key) -> tuple[str, float] | None:
        self.begin()
        lane = self.lanes.get(key)
        if lane is None or not lane.waits:
            return None
        oldest = min(lane.waits, key=lambda body: lane.waits[body])
        place = lane.waits.pop(oldest)
        self.ledger.drop(key, lane.token, kill=False, only=oldest)
        self.dropped += 1
        if not lane.waits and lane.runs is None:
            del self.lanes[key]
            self.ledger.anew(key)
        return oldest, place.score

    def act_all(self, name: str, delay: int, state: str | None, queue: str | None, lane: str | None, failing: bool) -> int:
        """Do it to all that match when it begins, and still do when it is their turn, in the order of their numbers."""
        self.begin()

        def matching() -> dict[int, tuple[Key, str | None]]:
            found: dict[int, tuple[Key, str | None]] = {
                one.number: (key, None)
                for key, one in self.lanes.items()
                if (state in (None, self.state(one)) or (state == "waiting" and one.runs is None))
                and (one.attempt or not failing)
            }
            if state in (None, "dead") and not failing:
                found |= {corpse.number: which for which, corpse in self.dead.items()}
            return {n: (key, body) for n, (key, body) in found.items() if queue in (None, key[0]) and lane in (None, key[1])}

        changed = 0
        for number in sorted(matching()):
            which = matching().get(number)
            if which is not None:
                key, body = which
                changed += bool(self.act(name, key, delay) if body is None else self.act_dead(name, key, body))
        return changed

    # -- what must be true -----------------------------------------------------------------------------------

    def sound(self) -> None:
        """After every step: what is owed is there."""
        for key, owed in self.ledger.owed.items():
            lane = self.lanes.get(key)
            for body, pushes in owed.items():
                there = lane is not None and (body in lane.waits or body in (lane.runs or {}))
                assert there or not pushes, "lost"
                later = lane is not None and not all(self.ledger.runs(key, lane.token, body, number) for number, _ in pushes)
                assert not later or (lane is not None and body in lane.waits), "swallowed by a run that was not given it"
        assert set(self.ledger.dead) == set(self.dead), "dead ones lost or doubled"
        for which, corpse in self.dead.items():
            assert corpse.score == self.ledger.dead[which].score, "a dead one's score"
        assert all(lane.waits or lane.runs is not None for lane in self.lanes.values()), "an empty lane"
        kept = sum(len(lane.waits) + len(lane.runs or ()) for lane in self.lanes.values()) + len(self.dead)
        gone = sum(self.totals[name] for name in ("merged", "processed", "cancelled")) + self.dropped
        assert self.totals["enqueued"] == kept + gone, "the totals do not add up"

    # -- for comparing ---------------------------------------------------------------------------------------

    def state(self, lane: Lane) -> str:
        if lane.runs is not None:
            return "running"
        return "ready" if lane.due <= self.now else "retrying" if lane.failed else "scheduled"

    def picture(self) -> dict[Key, tuple[object, ...]]:
        self.begin()
        return {
            key: (
                self.state(lane), lane.attempt, lane.worker, lane.token, lane.mark, lane.due, lane.since,
                len(lane.waits) + len(lane.runs or {}),
            )
            for key, lane in self.lanes.items()
        }  # fmt: skip

    def payloads(self, key: Key) -> list[tuple[str, float, bool]]:
        """What runs, then what waits, each by score."""
        lane = self.lanes[key]
        parts = ((lane.runs or {}, True), (lane.waits, False))
        return [
            (body, place.score, running)
            for part, running in parts
            for body, place in sorted(part.items(), key=lambda item: item[1])
        ]  # fmt: skip
