"""Capacity: the work of a load, and what it takes to keep up with it. Pure arithmetic.

Jobs come at a rate, and each keeps a slot for some seconds: rate × seconds is how many must run at a time just to keep up. With
fewer, a part of every day's work is left over. Then jobs wait longer each day, and the store fills; with more, a backlog goes.

A job that waits for I/O (`io`) needs a slot but no core: a process has many slots, and a machine as many processes as its
memory holds. A job that computes (`cpu`) needs a core, and so a process of its own: a process runs Python on one core at a time,
however many slots it has.

Figures are taken as they are written (0.07 is 7/100) and computed as fractions, so that 7.000000000000001 never asks for an
eighth slot.

Enters: a `Load`, a `Machine`, and the current workers.  Leaves: a `Plan`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from laneway.errors import ConfigError

__all__ = ["DAY", "HOUR", "WEEK", "Crew", "Kind", "Load", "Machine", "Need", "Option", "Pace", "Plan", "needed", "pace", "plan"]

Kind = Literal["io", "cpu"]

HOUR = 3600
DAY = 24 * HOUR
WEEK = 7 * DAY

#: The most cores of one machine.
MOST_CORES = 256


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs that come.

    >>> Load(rate=1000, share=0.1, seconds=0.05).work
    Fraction(5, 1)
    """

    rate: float  #: requests a second
    seconds: float  #: run time of a job
    share: float = 1.0  #: the part of the requests that enqueue a job: 0 to 1
    kind: Kind = "io"  #: it waits for I/O, or it computes
    bytes: int = 270  #: size of a waiting job in the store: a small one in Redis, see docs/redis.md
    backlog: int = 0  #: jobs that wait now

    def __post_init__(self) -> None:
        _within("rate", self.rate, 0, 10**9)
        _within("seconds", self.seconds, 10**-6, 10**9)
        _within("share", self.share, 0, 1)
        _whole("bytes", self.bytes, 0, 10**9)
        _whole("backlog", self.backlog, 0, 10**15)
        if self.kind not in get_args(Kind):
            raise ConfigError(f"kind={self.kind!r}: use io for jobs that wait for others, cpu for jobs that compute")

    @property
    def jobs(self) -> Fraction:
        """The jobs that come in a second."""
        return _exact(self.rate) * _exact(self.share)

    @property
    def work(self) -> Fraction:
        """The jobs that must run at a time to keep up: seconds of work that come in a second."""
        return self.jobs * _exact(self.seconds)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that runs workers."""

    cores: int = 1
    slots: int = 25  #: jobs at a time in one process
    ram: int | None = None  #: bytes
    app_memory: int | None = None  #: bytes that one process of the app takes, at worst

    def __post_init__(self) -> None:
        _whole("cores", self.cores, 1, 10_000)
        _whole("slots", self.slots, 1, 1_000_000)
        for name, value in (("ram", self.ram), ("app_memory", self.app_memory)):
            if value is not None:
                _whole(name, value, 1, 10**15)
        if not self.processes:
            raise ConfigError(
                f"an app of {self.app_memory:,} bytes does not fit into {self.ram:,} bytes of RAM: use a larger machine"
            )

    @property
    def processes(self) -> int:
        """The usual number of processes: one for each core, as far as the memory reaches."""
        return self.cores if self._fit is None else min(self.cores, self._fit)

    @property
    def _fit(self) -> int | None:
        """Return how many processes the memory holds; None: not given."""
        return None if self.ram is None or self.app_memory is None else self.ram // self.app_memory

    def most(self, kind: Kind) -> int | None:
        """Return the most processes for jobs of a kind: those that wait need memory, but no cores. None: any number."""
        return self._fit if kind == "io" else self.processes

    def each(self, kind: Kind) -> int:
        """Return how many jobs of a kind one process runs at a time."""
        return self.slots if kind == "io" else 1


@dataclass(frozen=True, slots=True)
class Crew:
    """The current workers."""

    slots: int
    processes: int
    machines: int

    def __post_init__(self) -> None:
        for name in ("slots", "processes", "machines"):
            _whole(name, getattr(self, name), 0, 10**9)

    def at_once(self, kind: Kind) -> int:
        """Return how many jobs of a kind run at a time."""
        return self.slots if kind == "io" else min(self.processes, self.slots)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a load develops with a given number of jobs at a time."""

    at_once: int
    ratio: float | None  #: enqueued jobs for each processed one; None: nothing is processed
    keeps_up: bool
    busy: float  #: the part of the time: 0 to 1
    jobs_a_day: int  #: the most jobs that can be done in a day
    hours_an_hour: float | None  #: how much longer jobs wait with every hour; None: they are never done
    hours_a_day: float | None  #: how much longer with every day
    after_day: int  #: jobs that wait after a day
    after_week: int
    bytes_after_day: int  #: their size in the store
    bytes_after_week: int
    drained: float | None  #: seconds until the backlog is gone; None: never


@dataclass(frozen=True, slots=True)
class Option:
    """An alternative: fewer machines, but larger ones."""

    machines: int
    cores: int
    ram_each: int | None  #: bytes that its processes take, at worst


@dataclass(frozen=True, slots=True)
class Need:
    """The resources to keep up."""

    slots: int  #: jobs at a time
    processes: int
    machines: int
    ram: int | None  #: bytes in all, at worst; None: the size of a process is not given
    ram_each: int | None  #: on the fullest machine
    busy: float  #: the part of the time that these would be busy: 0 to 1
    options: tuple[Option, ...]
    slots_for_hour: int  #: jobs at a time to clear the backlog within an hour
    slots_for_day: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers for a load."""

    load: Load
    machine: Machine
    crew: Crew | None
    alone: Pace  #: one job at a time
    with_machine: Pace  #: one such machine
    now: Pace | None  #: the current workers
    need: Need

    @property
    def jobs_a_day(self) -> int:
        """The jobs that come in a day."""
        return round(self.load.jobs * DAY)

    @property
    def hours_of_work_a_day(self) -> float:
        """The time that one slot would need for the jobs of a day."""
        return float(self.load.work * DAY / HOUR)


def plan(load: Load, machine: Machine | None = None, crew: Crew | None = None) -> Plan:
    """Answer all questions about a load: one job at a time, on one machine, and by the current workers.

    >>> answers = plan(Load(rate=1000, share=0.01, seconds=4, kind="cpu"), Machine(cores=4))
    >>> answers.alone.ratio, answers.with_machine.ratio, answers.need.machines
    (40.0, 10.0, 10)
    """
    machine = machine or Machine()
    return Plan(
        load=load,
        machine=machine,
        crew=crew,
        alone=pace(load, 1),
        with_machine=pace(load, machine.processes * machine.each(load.kind)),
        now=None if crew is None else pace(load, crew.at_once(load.kind)),
        need=needed(load, machine),
    )


def pace(load: Load, at_once: int) -> Pace:
    """Return how a load develops with `at_once` jobs at a time."""
    can = at_once / _exact(load.seconds)  # jobs a second
    ratio = load.work / at_once if at_once else None
    longer = Fraction(0) if not load.jobs else None if ratio is None else max(ratio - 1, Fraction(0))  # hours added per hour
    day, week = (_waiting(load, can, seconds) for seconds in (DAY, WEEK))
    return Pace(
        at_once=at_once,
        ratio=None if ratio is None else float(ratio),
        keeps_up=load.jobs <= can,
        busy=0.0 if ratio is None else min(float(ratio), 1.0),
        jobs_a_day=math.floor(can * DAY),
        hours_an_hour=None if longer is None else float(longer),
        hours_a_day=None if longer is None else float(longer * 24),
        after_day=round(day),
        after_week=round(week),
        bytes_after_day=round(day * load.bytes),
        bytes_after_week=round(week * load.bytes),
        drained=_drained(load, can),
    )


def needed(load: Load, machine: Machine) -> Need:
    """Return the resources to keep up."""
    slots = math.ceil(load.work)
    processes = _divided(slots, machine.each(load.kind))
    most = machine.most(load.kind) or max(processes, 1)
    machines = _divided(processes, most)
    memory = machine.app_memory
    return Need(
        slots=slots,
        processes=processes,
        machines=machines,
        ram=None if memory is None else memory * processes,
        ram_each=None if memory is None else memory * min(processes, most),
        busy=float(load.work / (processes * machine.each(load.kind))) if processes else 0.0,
        options=_options(load.kind, processes, machines, machine),
        slots_for_hour=_slots_to_drain(load, HOUR),
        slots_for_day=_slots_to_drain(load, DAY),
    )


def _waiting(load: Load, can: Fraction, seconds: int) -> Fraction:
    """Return how many jobs wait after this many seconds: never less than none."""
    return max(load.backlog + (load.jobs - can) * seconds, Fraction(0))


def _drained(load: Load, can: Fraction) -> float | None:
    if not load.backlog:
        return 0.0
    spare = can - load.jobs
    return float(load.backlog / spare) if spare > 0 else None


def _slots_to_drain(load: Load, seconds: int) -> int:
    return math.ceil((load.jobs + Fraction(load.backlog, seconds)) * _exact(load.seconds))


def _options(kind: Kind, processes: int, machines: int, machine: Machine) -> tuple[Option, ...]:
    """Return options with half as many machines, a quarter, and so on down to one."""
    found: list[Option] = []
    while machines > 1:
        machines //= 2
        each = _divided(processes, machines)
        cores = each if kind == "cpu" else machine.cores
        if cores <= MOST_CORES:
            found.append(Option(machines, cores, None if machine.app_memory is None else machine.app_memory * each))
    return tuple(found)


def _divided(number: int, by: int) -> int:
    """Divide, and round up."""
    return -(-number // by)


def _exact(value: float) -> Fraction:
    """Return a number as it was meant: 0.1 is a tenth, and 50 / 60 is five sixths, which no float is."""
    written = Fraction(str(value))
    simple = written.limit_denominator(1_000_000)
    return simple if abs(simple - written) * 10**14 <= written else written


def _within(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        least = f"{low:.6f}".rstrip("0").rstrip(".")
        raise ConfigError(f"{name}={value!r}: use a number from {least} to {high:,}")


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r}: use a whole number from {low:,} to {high:,}")
