"""How a plan is shown: one block for each question.

Enters: a `Plan`.  Leaves: lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from laneway.capacity import HOUR, Kind, Machine, Need, Pace, Plan
from laneway.capacity.observe import ENOUGH, LONG, Observed
from laneway.present.words import digits, duration, plural, trimmed

__all__ = ["count", "hours", "lines", "size"]

LABEL = 30
COLUMN = 16

KINDS: dict[Kind, str] = {"io": "waiting for others (io)", "cpu": "computing (cpu)"}


# -- numbers -----------------------------------------------------------------------------------------------------


def count(number: float) -> str:
    """Return a number of jobs.

    >>> [count(number) for number in (86_400, 1_728_000, 48_384_000, 2_500_000_000)]
    ['86,400', '1.73 million', '48.4 million', '2.5 billion']
    """
    for least, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= least:
            return f"{_digits(number / least)} {word}"
    return f"{number:,.0f}"


def size(number: float, decimals: int = 2) -> str:
    """Return an amount of memory.

    >>> size(1_257_984_000), size(153_316_800), size(4 << 30, 1)
    ('1.17 GiB', '146.2 MiB', '4 GiB')
    """
    for least, unit in ((1 << 40, "TiB"), (1 << 30, "GiB")):
        if number >= least:
            return f"{_short(number / least, decimals)} {unit}"
    for least, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= least:
            return f"{_short(number / least, 1)} {unit}"
    return plural(round(number), "byte") if number else "nothing"


def hours(number: float) -> str:
    """Return a time in hours, as long as it is one.

    >>> hours(96), hours(936), hours(0.25), hours(0)
    ('96 h', '936 h', '15m 00s', '0 h')
    """
    return f"{_digits(number)} h" if number >= 1 or not number else duration(number * HOUR)


def _digits(number: float) -> str:
    """Three digits that count; words where there are too many before the point."""
    return count(number) if number >= 10**6 else digits(number)


def _short(number: float, decimals: int) -> str:
    return trimmed(f"{number:,.{decimals}f}")


def _rate(number: float) -> str:
    return _digits(number) if number >= 0.1 or not number else f"{number:.2g}"


# -- text --------------------------------------------------------------------------------------------------------


def lines(answers: Plan, seen: Observed | None = None, *, guessed: bool = False) -> list[str]:
    """Return a plan as text for 80 columns; `guessed` if the kind of the jobs was not given."""
    paces = _paces(answers)
    return [
        *_load(answers, seen, guessed=guessed),
        "",
        _head("Does it keep up?", [name for name, _ in paces]),
        *_rows(paces, KEEPS_UP),
        "",
        _head("What is added?"),
        *_rows(paces, ADDED),
        "",
        _head("What would it take?"),
        *_need(answers),
        "",
        _head("When is the backlog gone?"),
        *_backlog(answers, paces, live=seen is not None),
    ]


def _load(answers: Plan, seen: Observed | None, *, guessed: bool) -> list[str]:
    load = answers.load
    jobs = f"{_rate(float(load.jobs))} jobs a second"
    if load.share != 1:
        jobs = f"{_rate(load.rate)} requests a second, {_short(load.share * 100, 2)} % enqueue a job: {jobs}"
    work = float(load.work)
    told = [
        f"{jobs}.",
        f"A job runs {duration(load.seconds)}, {KINDS[load.kind]}, and takes {plural(load.bytes, 'byte')} in the store.",
        f"{count(answers.jobs_a_day)} a day, {hours(answers.hours_of_work_a_day)} of work: {_rate(work)} at a time to keep up.",
    ]
    return [*told, *_basis(seen, guessed=guessed)] if seen is not None else told


def _basis(seen: Observed, *, guessed: bool) -> list[str]:
    told = [
        f"Based on the last {seen.runs:,} runs over {duration(seen.over)}, and what waits.",
        f"The last run ended {duration(seen.ago)} ago.",
    ]
    if not seen.enough:
        told.append(f"That is little: take it for a guess until {ENOUGH} runs and {duration(LONG)} are behind it.")
    if guessed and seen.computing:
        whose = "it" if len(seen.computing) == 1 else "them"
        told += [
            f"Jobs are taken for ones that wait. Workers have learned of tasks that compute: plan {whose} apart, with --kind cpu:"
        ]
        told += [f"  {task}" for task in seen.computing[:5]]
    elif guessed:
        told.append("Jobs are taken for ones that wait: say --kind cpu if they compute.")
    if seen.paused:
        told.append(f"Not counted is what waits in paused queues: {', '.join(seen.paused)}.")
    return told


def _paces(answers: Plan) -> list[tuple[str, Pace]]:
    """The ways to look at it, each with its name: those that are the same are shown once."""
    first = ("one at a time", answers.alone) if answers.now is None else ("now", answers.now)
    second = (_machine_name(answers.machine, answers.load.kind), answers.with_machine)
    return [first] if first[1].at_once == second[1].at_once else [first, second]


def _machine_name(machine: Machine, kind: Kind) -> str:
    if kind == "cpu":
        return plural(machine.processes, "core")
    slots = plural(machine.slots, "slot")
    return slots if machine.processes == 1 else f"{machine.processes} × {slots}"


def _keeps_up(pace: Pace) -> str:
    return f"yes, {pace.busy * 100:.0f} % busy" if pace.keeps_up else "no"


def _ratio(pace: Pace) -> str:
    if pace.ratio is None:
        return "no worker"
    text = _rate(pace.ratio)
    return f"1:{text}" if pace.keeps_up or text != "1" else "just over 1:1"


def _longer(number: float | None) -> str:
    return "for ever" if number is None else hours(number) if number else "nothing"


Row = tuple[str, Callable[[Pace], str]]

KEEPS_UP: Sequence[Row] = (
    ("jobs at a time", lambda pace: f"{pace.at_once:,}"),
    ("processed : enqueued", _ratio),
    ("keeps up", _keeps_up),
    ("jobs it can do in a day", lambda pace: count(pace.jobs_a_day)),
)
ADDED: Sequence[Row] = (
    ("waiting time, with every hour", lambda pace: _longer(pace.hours_an_hour)),
    ("waiting time, with every day", lambda pace: _longer(pace.hours_a_day)),
    ("jobs that wait after a day", lambda pace: count(pace.after_day)),
    ("jobs that wait after a week", lambda pace: count(pace.after_week)),
    ("store memory after a day", lambda pace: size(pace.bytes_after_day)),
    ("store memory after a week", lambda pace: size(pace.bytes_after_week)),
)


def _head(question: str, names: Sequence[str] = ()) -> str:
    placed = f"{question:{LABEL + 2}}" if names else question
    return click.style(placed, bold=True) + "".join(f"{name:>{COLUMN}}" for name in names)


def _rows(paces: Sequence[tuple[str, Pace]], rows: Sequence[Row]) -> list[str]:
    return [f"  {label:{LABEL}}" + "".join(_cell(tell(pace)) for _, pace in paces) for label, tell in rows]


def _cell(text: str) -> str:
    placed = f"{text:>{COLUMN}}"
    good = {"no": False, "yes": True}.get(text.partition(",")[0])
    return placed if good is None else click.style(placed, fg="green" if good else "red")


def _need(answers: Plan) -> list[str]:
    load, machine, need = answers.load, answers.machine, answers.need
    if not need.slots:
        return ["  Nothing to keep up with: no job comes." + " What it takes for the backlog is below." * bool(load.backlog)]
    each = "one on each core: they compute" if load.kind == "cpu" else f"of {plural(machine.slots, 'slot')} each"
    told = [
        f"  {'slots':14}{count(need.slots)}: this many jobs run at a time",
        f"  {'processes':14}{count(need.processes)}, {each}",
        f"  {'machines':14}{count(need.machines)} of {_machines(load.kind, machine, need)}",
        f"  {'RAM':14}{_ram(need, machine)}",
    ]
    if load.kind == "cpu" and machine.processes < machine.cores:
        told.append(f"  The RAM of a machine is enough for {machine.processes} processes: other cores idle.")
    if load.kind == "io" and need.processes > machine.processes:
        told.append("  They wait, and need no cores: more slots in a process would take less RAM.")
    if need.busy > 0.8:
        told.append(f"  They would be busy {need.busy * 100:.0f} % of the time: have more, for bursts and failures.")
    return told


def _machines(kind: Kind, machine: Machine, need: Need) -> str:
    """What a machine has that limits it, and other ways to have enough of it."""
    if kind == "cpu":
        ways = [f"{option.machines:,} of {option.cores}" for option in need.options[:3]]
    else:
        ways = [f"{option.machines:,} of {size(option.ram_each or 0, 1)}" for option in need.options[:1]]
    limit = (
        size(machine.ram, 1) if machine.ram is not None and need.machines > 1 and kind == "io" else plural(machine.cores, "core")
    )
    return "; or ".join([limit, ", ".join(ways)]) if ways else limit


def _ram(need: Need, machine: Machine) -> str:
    if need.ram is None or need.ram_each is None:
        return "say what a process of the app takes: --app-memory 400M"
    fullest = size(need.ram_each, 1)
    if machine.ram is not None:
        whole = size(machine.ram, 1)
        same = fullest.rpartition(" ")[2] == whole.rpartition(" ")[2]
        fullest = f"{fullest.rpartition(' ')[0] if same else fullest} of {whole}"
    return f"{fullest} on each machine, {size(need.ram, 1)} in all, at worst"


def _backlog(answers: Plan, paces: Sequence[tuple[str, Pace]], *, live: bool) -> list[str]:
    load, need = answers.load, answers.need
    if not load.backlog:
        return ["  Nothing waits." if live else "  Nothing waits, as far as was said: see --backlog."]
    return [
        f"  {plural(load.backlog, 'job')} {'waits' if load.backlog == 1 else 'wait'}.",
        *_rows(paces, [("gone in", lambda pace: "never" if pace.drained is None else duration(pace.drained))]),
        f"  Gone within an hour takes {count(need.slots_for_hour)} at a time, within a day {count(need.slots_for_day)}.",
    ]
