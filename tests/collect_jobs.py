"""The app that fleets run in the random test of collectors: two collectors that write down what they are given and say.

What a run says is chance, but the same for the same seed, lane and token. A payload that is `POISON` makes its lane fail always.
The fleets load this by its path. The test declares the same collectors on an app of its own.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

from collect_evidence import Given, Rules, append, key
from laneway import App, Cancel, LaneFailures, Retry, Snooze, current_job
from laneway.desk.collector import Collector

__all__ = ["HOT", "POISON", "RULES", "Collectors", "app", "declare"]

#: A payload that never succeeds.
POISON = 9
#: A third of all payloads comes into these lanes: there, runs and enqueues meet.
HOT = frozenset(f"l{n}" for n in range(8))
#: What the model knows of both: `many` has given scores with ties, `some` the store's own.
RULES = {
    "many": Rules(max_lanes=8, max_payloads=0, retries=2, backoff=20_000_000, snooze=10_000_000),
    "some": Rules(max_lanes=3, max_payloads=2, retries=1, backoff=20_000_000, snooze=10_000_000),
}


def many(lanes: dict[str, list[int]]) -> None:
    """Get all payloads of some lanes."""
    _collect("many", lanes)


def some(lanes: dict[str, list[int]]) -> None:
    """Get a few payloads of a few lanes."""
    _collect("some", lanes)


def _collect(name: str, lanes: dict[str, list[int]]) -> None:
    job, path = current_job(), os.environ["FLEET_EVIDENCE"]
    chance = random.Random(f"{os.environ.get('COLLECT_SEED')} {name} {job.token}")  # noqa: S311 - chance that can be had again
    claimed = [(str(unit.lane), unit) for unit in job.claim.units]
    given = {lane: [Given(p.body.decode() or "-", p.score) for p in unit.payloads] for lane, unit in claimed}
    # Something is to come during a run of hot lanes. Others go on: they must not take all slots; and so do isolated runs, whose
    # end would not be their worker's.
    held = name == "many" and not HOT.isdisjoint(lanes) and not job.claim.lost and os.path.exists(f"{path}.hold")
    said_first = "held" if held else "-"
    append(path, "start", job.token, [(key(name, lane), unit.attempt, said_first, given[lane]) for lane, unit in claimed])
    assert lanes == {lane: [int(one.body) for one in found if one.body != "-"] for lane, found in given.items()}
    while held and os.path.exists(f"{path}.hold"):
        time.sleep(0.002)
    time.sleep(chance.uniform(0.002, 0.02))
    said = _say(lanes, chance)
    append(path, "end", job.token, [(key(name, lane), unit.attempt, said[lane], ()) for lane, unit in claimed])
    _raise(said, chance)


def _say(lanes: dict[str, list[int]], chance: random.Random) -> dict[str, str]:
    """Decide what becomes of each lane; at times of all of them together."""
    if chance.random() < 0.06:
        return dict.fromkeys(lanes, chance.choice(("failed", "failed", "snoozed", "cancelled")))
    kinds = ("done", "failed", "snoozed", "cancelled")
    said = {lane: chance.choices(kinds, (88, 8, 3, 1))[0] for lane in lanes}
    return said | {lane: "failed" for lane, payloads in lanes.items() if POISON in payloads}


def _raise(said: dict[str, str], chance: random.Random) -> None:
    """Say it: by an error of the whole run if all lanes have the same, by errors of lanes otherwise."""
    errors: dict[str, Exception] = {
        "failed": ValueError("no luck"),
        "snoozed": Snooze(RULES["many"].snooze / 1e9),
        "cancelled": Cancel("not wanted"),
    }
    if len(kinds := set(said.values())) == 1 and kinds != {"done"} and chance.random() < 0.5:
        raise errors[kinds.pop()]
    failures = {lane: errors[what] for lane, what in said.items() if what != "done"}
    if failures:
        raise LaneFailures(failures)


@dataclass(frozen=True, slots=True)
class Collectors:
    """The collectors of one app."""

    many: Collector[int, None]
    some: Collector[int, None]


def declare(on: App) -> Collectors:
    """Declare the collectors on an app."""

    def retry(rules: Rules) -> Retry:
        return Retry(times=rules.retries, backoff=rules.backoff / 1e9)

    few = RULES["some"]
    return Collectors(
        many=on.collector(name="many", max_lanes=RULES["many"].max_lanes, retry=retry(RULES["many"]))(many),
        some=on.collector(name="some", max_lanes=few.max_lanes, max_payloads=few.max_payloads, retry=retry(few))(some),
    )


app = App(os.environ.get("FLEET_STORE", "sqlite://"), dead_after=float(os.environ.get("FLEET_DEAD_AFTER", "15")))
declare(app)
