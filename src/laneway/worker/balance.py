"""Balancing: how many of a worker's slots each queue is to have. Pure: no store, no clock, no threads.

A *policy* is a function of the slots and of the loads, which are the jobs that wait in each queue. It returns the share of each
queue, by a rule: equally, in proportion to what waits, by weight, in order. A share may be a fraction: an average. Users can
write policies; `check` says what is wrong with a policy's answer.

Shares are computed once a second (`shares.fair`) from smoothed loads (`smoothed_loads`): small changes of a load are ignored, so
that slots do not move without need.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

from laneway.errors import ConfigError, did_you_mean
from laneway.settings import BALANCES

__all__ = ["Policy", "adaptive", "check", "choose", "even", "smoothed_loads", "name_of", "read_weights", "strict", "weighted"]


#: Returns the slots of each queue: `policy(slots, loads)`, where loads are the jobs that wait in the queues that have work. A
#: parameter `turn` gets the number of deals before this one; a parameter `io` the queues whose jobs wait more than they compute.
Policy = Callable[..., Mapping[str, float]]

#: A load counts as before while it differs by at most this part, or this many jobs: so slots stay where they are.
BAND, FEW = 0.25, 2
#: A queue that ran empty counts as one with a job for a few seconds more; its share is lent meanwhile.
FADES, GONE = 0.7, 0.1
#: The most characters of a policy's name that are reported: a weighted policy names every queue.
LONGEST = 200


def even(slots: int, loads: Mapping[str, int], *, turn: int = 0) -> dict[str, int]:
    """Deal slots equally to the queues that have work; remaining slots go one each to the longest queues.

    With fewer slots than queues the longest are served; with each `turn` the next ones.

    >>> even(25, {"mail": 900, "images": 40, "reports": 0})
    {'mail': 13, 'images': 12, 'reports': 0}
    """
    busy = [queue for queue, load in loads.items() if load] or list(loads)
    shares = dict.fromkeys(loads, 0)
    if not busy:
        return shares
    each, left = divmod(slots, len(busy))
    for queue in busy:
        shares[queue] = each
    # Queues whose share is one slot or none take turns; otherwise the extra slots stay where they are.
    for queue in _longest(busy, loads, left, turn * left if not each else 0):
        shares[queue] += 1
    return shares


def adaptive(slots: int, loads: Mapping[str, int], io: Collection[str] | None = None, *, turn: int = 0) -> dict[str, int]:
    """Deal one slot to each queue, and the rest in proportion to what waits: over I/O queues only, if there are any.

    `io` names them; by default they are the queues whose names end in "-io". Shares are rounded to the nearest, halves
    down. Remaining slots go one each to the longest queues, slots overspent come from those rounded up most.

    With fewer slots than queues the longest are served; with each `turn` the next ones.

    >>> adaptive(25, {"images": 50_000, "mail": 2_000, "sync": 500, "reports": 340})
    {'images': 21, 'mail': 2, 'sync': 1, 'reports': 1}
    >>> adaptive(25, {"images": 50_000, "mail-io": 2_000, "sync-io": 500})
    {'images': 1, 'mail-io': 19, 'sync-io': 5}
    """
    queues = list(loads)
    if not queues:
        return {}
    if slots < len(queues):
        served = set(_longest(queues, loads, slots, turn * slots))
        return {queue: int(queue in served) for queue in queues}
    waiting = [queue for queue in queues if (queue.endswith("-io") if io is None else queue in io)] or queues
    shares = dict.fromkeys(queues, 1)
    for queue, more in _in_proportion(slots - len(queues), {queue: loads[queue] for queue in waiting}).items():
        shares[queue] += more
    return shares


def weighted(weights: Mapping[str, float]) -> Policy:
    """Return a policy that deals slots by weight to the queues that have work. A queue that is not named has weight 1.

    >>> weighted({"critical": 6, "default": 3})(20, {"critical": 5, "default": 70, "low": 9})
    {'critical': 12.0, 'default': 6.0, 'low': 2.0}
    """
    for queue, weight in weights.items():
        if not _is_number(weight) or not 0 < weight < math.inf:
            raise ConfigError(f"the weight of {queue!r} is {weight!r}: use a number greater than 0")

    def by_weight(slots: int, loads: Mapping[str, int]) -> dict[str, float]:
        busy = {queue: weights.get(queue, 1) for queue, load in loads.items() if load} or {q: weights.get(q, 1) for q in loads}
        total = sum(busy.values())
        return {queue: slots * busy.get(queue, 0) / total for queue in loads}

    by_weight.__qualname__ = f"weighted ({', '.join(f'{queue} {weight:g}' for queue, weight in weights.items())})"
    return by_weight


def strict(order: Sequence[str]) -> Policy:
    """Return a policy that serves a queue only while those before it have no work. Queues that are not named come last.

    >>> strict(["critical", "default"])(10, {"low": 3, "default": 9, "critical": 0})
    {'default': 10, 'low': 0, 'critical': 0}
    """
    rank = {queue: number for number, queue in enumerate(order)}

    def in_order(slots: int, loads: Mapping[str, int]) -> dict[str, int]:
        # Queues without a share borrow slots, in the order of the answer.
        queues = sorted(loads, key=lambda queue: (not loads[queue], rank.get(queue, len(rank))))
        return {queue: 0 if number else slots for number, queue in enumerate(queues)}

    in_order.__qualname__ = "strict"
    return in_order


def read_weights(entries: Sequence[str]) -> tuple[tuple[str, ...], dict[str, float]]:
    """Return the named queues, and the weights of those that have one.

    A queue's own name may have a colon in it: only a number after the last one is a weight.

    >>> read_weights(["critical:6", "default:3", "low", "tenant:a"])
    (('critical', 'default', 'low', 'tenant:a'), {'critical': 6.0, 'default': 3.0})
    """
    weights: dict[str, float] = {}
    names: list[str] = []
    for entry in entries:
        name, colon, number = entry.rpartition(":")
        if colon and re.fullmatch(r"\d+(\.\d+)?", number):
            weights[name] = float(number)
        else:
            name = entry
        if name in names:
            raise ConfigError(f'the queue "{name}" is named twice: name it once, with one weight')
        names.append(name)
    return tuple(names), weights


def choose(balance: str | Policy | None, queues: Sequence[str] | None, weights: Mapping[str, float]) -> Policy:
    """Return the chosen policy: by name, by weights, or a function of the user's."""
    if weights:
        if balance is not None:
            raise ConfigError(
                "queues with weights and a balance (balance=, --balance, LANEWAY_BALANCE or pyproject.toml) together: "
                "weights are a way to balance. Leave one out"
            )
        return weighted(weights)
    if balance == "strict":
        if not queues:
            raise ConfigError('balance "strict" serves queues in order: name them, such as -q critical,default')
        return strict(queues)
    if balance is None or balance == "even":
        return even
    if balance == "adaptive":
        return adaptive
    if not callable(balance):
        raise ConfigError(f"balance={balance!r}: use one of {', '.join(BALANCES)}, or a function of slots and loads")
    return balance


def name_of(policy: Policy) -> str:
    """Return the name of a policy, for display.

    >>> name_of(even), name_of(weighted({"critical": 6, "low": 0.5}))
    ('even', 'weighted (critical 6, low 0.5)')
    """
    name: str = getattr(policy, "__qualname__", None) or type(policy).__name__
    name = name.rpartition("<locals>.")[2]
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _longest(queues: Sequence[str], loads: Mapping[str, int], number: int, first: int = 0) -> list[str]:
    """Return `number` of the longest queues, later ones before earlier ones, from the `first` on."""
    ordered = sorted(range(len(queues)), key=lambda place: (loads[queues[place]], place), reverse=True)
    return [queues[ordered[(first + place) % len(queues)]] for place in range(number)]


def _in_proportion(slots: int, loads: Mapping[str, int]) -> dict[str, int]:
    """Divide slots by load: to the nearest, halves down, and exactly as many as there are."""
    if not sum(loads.values()):
        loads = dict.fromkeys(loads, 1)
    total = sum(loads.values())
    # The smallest whole number that is not less than the exact share - 1/2, without fractions.
    shares = {queue: -((total - 2 * slots * load) // (2 * total)) for queue, load in loads.items()}
    left = slots - sum(shares.values())
    if left > 0:
        for queue in _longest(list(loads), loads, left):
            shares[queue] += 1
    elif left < 0:
        rounded_up = sorted(loads, key=lambda queue: shares[queue] * total - slots * loads[queue], reverse=True)
        for queue in rounded_up[:-left]:
            shares[queue] -= 1
    return shares


def check(given: object, slots: int, loads: Mapping[str, int], policy: Policy | None = None) -> dict[str, float]:
    """Return a policy's answer for every queue, or raise an error that says what is wrong with it."""
    who = "the balance policy" if policy is None else f"the balance policy {name_of(policy)}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{who} gave {given!r}: return a dict of slots by queue")
    shares = cast("Mapping[str, float]", given)
    for queue, share in shares.items():
        if queue not in loads:
            raise ConfigError(f"{who} gave slots to {queue!r}, which is not among the loads.{did_you_mean(str(queue), loads)}")
        if not _is_number(share) or not 0 <= share < math.inf:
            raise ConfigError(f"{who} gave {queue!r} {share!r} slots: use numbers from 0")
    if sum(shares.values()) > slots + 1e-6:
        raise ConfigError(f"{who} gave away {sum(shares.values()):g} slots: there are {slots}")
    return {**shares, **{queue: 0 for queue in loads if queue not in shares}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def smoothed_loads(before: Mapping[str, float], loads: Mapping[str, int]) -> dict[str, float]:
    """Return the next smoothed loads: small changes are ignored, and a queue that ran empty is kept for a while."""
    now: dict[str, float] = {}
    for queue in dict.fromkeys([*loads, *before]):
        was, load = before.get(queue, 0.0), loads.get(queue, 0)
        if load and was >= 1 and abs(load - was) <= max(BAND * was, FEW):
            now[queue] = was
        elif load:
            now[queue] = load
        elif min(was, 1.0) * FADES >= GONE:
            now[queue] = min(was, 1.0) * FADES
    return now
