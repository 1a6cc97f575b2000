"""What commands show with rich: the live view of `top` and the demo.

The live view is made for 80 columns and 24 rows and uses more if there are. Every row keeps its place: tasks, queues and lanes
stay where they first appeared, and lists have as many lines as there is room for, filled or not. Only this module loads rich,
which is an extra: `top`.

Enters: snapshots.  Leaves: a picture of them.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laneway.cli.show import OUTCOME_COLOURS, clock
from laneway.cli.table import PHASE_COLOURS, STATE_COLOURS
from laneway.core.instant import SECOND
from laneway.core.job import STATES
from laneway.present.snapshot import Details, Snapshot
from laneway.present.words import clip, clip_name, duration, seconds_of, share_of, short_id, sparkline

if TYPE_CHECKING:
    from laneway.cli.demo import Demo
    from laneway.cli.top import Top
    from laneway.store.inspection import QueueInfo
    from laneway.store.runs import Run

    Shown: TypeAlias = Top | Demo  # what is watched: a store, or the demo's shop

__all__ = ["View", "divide", "print_once", "watch"]

HEAD = "bold"
DIM = "bright_black"
LANE_LINES = 4
LEAST_RUNS = 3
#: The number of runs that are remembered, so that none is counted twice.
COUNTED = 3000
#: Queues are the last to become fewer.
LEAST = {"queues": 5, "tasks": 3, "workers": 2, "lanes": 2}
#: The least characters of a queue's name; then there is room for the note that it counts lanes.
LEAST_NAME = 8
#: The least rows for a view with blank lines between its parts.
ROOMY = 30


def watch(shown: Shown) -> None:
    """Show something until it is over, on the whole screen."""
    console = Console(highlight=False)
    view = View()
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            began = time.monotonic()
            seen, details = shown.look()
            view.take(seen, details)
            live.update(view.picture(shown, console.width, console.height), refresh=True)
            if shown.done(seen) or shown.rest(max(shown.every - (time.monotonic() - began), 0.02)):
                return


def print_once(shown: Shown) -> None:
    """Print one picture, where there is no screen."""
    console = Console(highlight=False, width=120)
    view = View()
    view.take(*shown.look())
    console.print(view.picture(shown, console.width, 40))


class View:
    """The live view: what was seen so far, and how to paint it."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Counter[str]] = {}  # by task
        self._counted: dict[tuple[str, int], None] = {}  # the runs that are in it, the oldest first
        self._lanes: list[str] = []
        self._ticks: deque[tuple[float, int]] = deque(maxlen=400)  # when, and runs until then
        self._seen: Snapshot
        self._details: Details

    def take(self, seen: Snapshot, details: Details) -> None:
        """Take note of what a look at the store showed."""
        self._seen = seen
        self._details = details
        for run in reversed(seen.recent):
            key = (run.id, run.finished)
            if key not in self._counted:
                self._counted[key] = None
                self._outcomes.setdefault(run.task, Counter())[run.outcome] += 1
            if len(self._counted) > COUNTED:
                del self._counted[next(iter(self._counted))]
        for job in details.running:
            self._outcomes.setdefault(job.task, Counter())
        self._lanes += sorted({job.lane for job in details.blocked if job.lane} - set(self._lanes))
        self._ticks.append((time.monotonic(), seen.totals["processed"] + seen.totals["failed"]))

    def picture(self, shown: Shown, width: int, height: int) -> RenderableType:
        """Paint everything in this many columns and rows."""
        wishes = {
            "queues": min(len(self._seen.queues), 8),
            "tasks": min(len(self._outcomes), 6),
            "workers": min(len(self._seen.workers), 6) if shown.share is None else 0,
            "lanes": LANE_LINES,
        }
        gap = [Text("")] if height >= ROOMY else []
        lines, runs = divide(wishes, height - 4, len(gap))
        parts: list[RenderableType] = [self._title(shown, width), self._pulse(width), Text("")]
        for name, paint in (("queues", self._queues), ("tasks", self._tasks), ("workers", self._workers)):
            if wishes[name]:
                parts += [paint(lines[name], width), *gap]
        parts += [self._lanes_and_dead(lines["lanes"], width), *gap, self._runs(runs, width)]
        return Group(*parts)

    # -- its parts -------------------------------------------------------------------------------------------

    def _title(self, shown: Shown, width: int) -> Text:
        title = Text.assemble(("Laneway ", HEAD), f"{shown.name}  ", no_wrap=True, overflow="ellipsis")
        room = max(width - len(title) - len(shown.hint) - 15, 10)
        if shown.share is None:
            title.truncate(width - len(shown.hint) - 12, overflow="ellipsis")
            return Text.assemble(title, " " * (width - len(title) - len(shown.hint) - 11), f"{shown.phase}  ", (shown.hint, DIM))
        filled = round(shown.share * room)
        bar = (("━" * filled, "green"), ("━" * (room - filled), DIM))
        return Text.assemble(title, *bar, f"  {shown.phase:12}", (shown.hint, DIM), no_wrap=True, overflow="crop")

    def _pulse(self, width: int) -> Text:
        totals = self._seen.totals
        figures = Text.assemble(
            f"  enqueued {totals['enqueued']:<6}", ("done ", "green"), f"{totals['processed']:<6}",
            ("retried ", "yellow"), f"{totals['retried']:<5}", ("dead ", "red"), f"{totals['dead']}",
        )  # fmt: skip
        size = max(width - len(figures) - 7, 10)
        rates = self._rates(size)
        rate = sum(rates[-4:]) / len(rates[-4:]) if rates else 0
        return Text.assemble(
            (f"{sparkline(rates):>{size}}", "green"), f" {rate:4.0f}/s"[:7], figures, no_wrap=True, overflow="crop"
        )  # fmt: skip

    def _rates(self, size: int) -> list[float]:
        """Runs a second, over two looks each, the newest last."""
        pairs = itertools.pairwise(list(self._ticks)[::-2])
        rates = [(many - few) / (after - before) for (after, many), (before, few) in pairs]
        return rates[:size][::-1]

    def _queues(self, lines: int, width: int) -> Table:
        names = 16 + min(max(width - 78, 0), 20)
        table = _grid(
            ("queue", names, "left"),
            *((state, len(state) + 2, "right") for state in STATES),
            ("oldest", 9, "right"),
        )
        for queue in self._seen.queues[: _shown(lines, len(self._seen.queues))]:
            numbers = [_number(queue.counts[state], STATE_COLOURS[state]) for state in STATES]
            first = self._details.oldest.get(queue.name)
            age = duration(max((datetime.now(UTC) - first).total_seconds(), 0)) if first else ""
            table.add_row(_queue(queue, names), *numbers, age)
        _add_rest(table, lines, len(self._seen.queues), "queues")
        return table

    def _tasks(self, lines: int, width: int) -> Table:
        spare = max(width - 78, 0)
        wide = 20 + min(spare, 24)
        table = _grid(
            ("task", wide, "left"),
            ("now", 26, "left"),
            *((name, 10, "right") for name in ("done", "retried", "dead")),
        )
        running = Counter(job.task for job in self._details.running)
        names = list(self._outcomes)
        if len(names) > lines:  # not all have a place: the busy ones
            names.sort(key=lambda name: (-running[name], -sum(self._outcomes[name].values()), name))
        for task in names[: _shown(lines, len(names))]:
            progress = next((job.progress for job in self._details.running if job.task == task and job.progress), None)
            numbers = [_number(self._outcomes[task][name], OUTCOME_COLOURS[name]) for name in ("done", "retrying", "dead")]
            table.add_row(
                _name(task, wide), _bar(*progress) if progress else Text("●" * min(running[task], 25), "green"), *numbers
            )
        _add_rest(table, lines, len(names), "tasks")
        return table

    def _workers(self, lines: int, width: int) -> Table:
        table = _grid(
            ("worker", 24, "left"), ("phase", 10, "left"), ("busy", 8, "right"), ("memory", 8, "right"), ("beat", 12, "right"),
            ("  runs", max(width - 62, 10), "left"),
        )  # fmt: skip
        for worker in self._seen.workers[: _shown(lines, len(self._seen.workers))]:
            beat = "" if worker.beat_age is None else f"{duration(worker.beat_age)} ago"
            table.add_row(
                _name(f"{worker.host or worker.id}:{worker.pid}", 24), Text(worker.phase, PHASE_COLOURS.get(worker.phase, "")),
                f"{worker.busy}/{worker.slots}", f"{worker.rss >> 20}M", Text(beat, DIM),
                f"  {' '.join(sorted({job.task for job in worker.jobs}))}",
            )  # fmt: skip
        _add_rest(table, lines, len(self._seen.workers), "workers")
        return table

    def _lanes_and_dead(self, lines: int, width: int) -> Table:
        waiting = Counter(job.lane for job in self._details.blocked)
        left = 34
        table = Table.grid()
        table.add_column(width=left, no_wrap=True)
        table.add_column(width=width - left, no_wrap=True, overflow="ellipsis")
        table.add_row(Text("blocked jobs by lane", HEAD), Text("dead, the latest", HEAD))
        lanes = self._lanes
        if len(lanes) > lines * 2:  # not all have a place: the longest
            lanes = sorted(lanes, key=lambda lane: (-waiting[lane], lane))
        for line in range(lines):
            pair = Text()
            name, bar = (16, 12) if len(lanes) <= lines else (5, 11)
            for lane in lanes[line : lines * 2 : lines]:
                pair.append(f"{clip_name(lane, name)} ").append(clip("▪" * min(waiting[lane], 9), bar), "magenta")
            died = Text()
            if line < len(self._details.dead) and self._details.dead[line].errors:
                job = self._details.dead[line]
                died.append(f"{_name(job.task, (width - left) // 2)}  ").append(
                    f"{job.errors[-1].kind.rpartition('.')[2]}: {job.errors[-1].message}", "red"
                )
            table.add_row(pair, died)
        return table

    def _runs(self, lines: int, width: int) -> Table:
        wide = 21 + min(max(width - 78, 0), 24)
        table = _grid(
            ("last runs", 10, "left"), ("", wide, "left"), ("", 10, "left"), ("", 14, "left"), ("", 10, "left"),
            ("", 9, "right"),
        )  # fmt: skip
        for run in self._seen.recent[:lines]:
            table.add_row(*_run_cells(run, wide - 1, 13))
        return table


def divide(wishes: Mapping[str, int], room: int, gap: int) -> tuple[dict[str, int], int]:
    """Divide a screen's rows among lists that have a heading each; return how many lines each gets, and the list of runs."""
    lines = dict(wishes)
    headings = (1 + gap) * sum(1 for number in lines.values() if number) + 1
    for least in (LEAST, {}):
        over = {name: number - least.get(name, 2) for name, number in lines.items()}
        while headings + sum(lines.values()) + LEAST_RUNS > room and max(over.values()) > 0:
            longest = max(over, key=lambda name: over[name])
            lines[longest] -= 1
            over[longest] -= 1
    return lines, max(room - headings - sum(lines.values()), 1)


def _shown(lines: int, number: int) -> int:
    """Return how many things are shown in the given lines: one less if not all fit, for the line that says so."""
    return number if number <= lines else lines - 1


def _add_rest(table: Table, lines: int, number: int, what: str) -> None:
    if number > lines:
        table.add_row(Text(f"and {number - lines + 1} more {what}", DIM))


def _grid(*columns: tuple[str, int, str]) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style=HEAD, show_edge=False)
    for name, width, side in columns:
        table.add_column(name, width=width, justify="right" if side == "right" else "left", no_wrap=True, overflow="ellipsis")
    return table


def _queue(queue: QueueInfo, width: int) -> Text:
    """A queue's name, and what must be known of it: rather the name is cut."""
    paused, lanes = " paused" * queue.paused, " lanes" * queue.collects
    if width - len(paused) - len(lanes) < LEAST_NAME:
        lanes = "" if paused else lanes
    name = _name(queue.name, width - len(paused) - len(lanes))
    return Text.assemble(name, (lanes, DIM), (paused, "yellow"))


def _name(name: str, width: int) -> str:
    return clip_name(name, width).rstrip()


def _number(value: int, colour: str) -> Text:
    return Text(str(value), colour) if value else Text("·", "bright_black")


def _bar(done: float, total: float) -> Text:
    share = share_of(done, total)
    filled = round(share * 20)
    return Text.assemble(("━" * filled, "green"), ("━" * (20 - filled), "bright_black"), f" {share:4.0%}")


def _run_cells(run: Run, task: int, lane: int) -> list[Text | str]:
    took = seconds_of(run)
    return [
        Text(clock(run.finished / SECOND), "bright_black"),
        _name(run.task, task),
        Text(short_id(run.id), "bright_black"),
        _name(run.lane or "-", lane),
        Text(run.outcome, OUTCOME_COLOURS[run.outcome]),
        "-" if took is None else duration(took),
    ]
