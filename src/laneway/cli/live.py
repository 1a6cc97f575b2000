"""What commands show with rich: the demo's live view and the status tables.

The live view is made for 80 columns and 24 rows and uses more if there are. Every row keeps its place: tasks, queues and lanes
stay where they first appeared, and lists have as many lines as there is room for, filled or not. Only this module loads rich.

Enters: snapshots.  Leaves: a picture of them.  Called by: `demo`, `status`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laneway.cli.show import OUTCOME_COLOURS, clip, clock, duration, short_id, sparkline
from laneway.cli.snapshot import Details, Snapshot
from laneway.instant import SECOND
from laneway.job import STATES

if TYPE_CHECKING:
    from laneway.cli.demo import Demo
    from laneway.store.inspect import Run

__all__ = ["print_status", "watch"]

STATE_COLOURS = {
    "scheduled": "cyan",
    "ready": "blue",
    "retrying": "yellow",
    "blocked": "magenta",
    "running": "green",
    "dead": "red",
}
REFRESH = 0.25
HEAD = "bold"
LANE_LINES = 4
#: A view with blank lines between its parts needs so many rows.
ROOMY = 30


def watch(shown: Demo) -> None:
    """Show a demo until it is over."""
    from laneway.cli.demo_shop import app  # noqa: PLC0415

    console = Console(highlight=False)
    view = View(sorted(app.tasks))
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            began = time.monotonic()
            seen = shown.snapshot()
            view.take(seen, Details.of(app))
            live.update(view.picture(shown, console.width, console.height), refresh=True)
            if shown.done(seen):
                return
            time.sleep(max(REFRESH - (time.monotonic() - began), 0.02))


class View:
    """The live view: what was seen so far, and how to paint it."""

    def __init__(self, tasks: list[str]) -> None:
        self._tasks = tasks
        self._outcomes: dict[str, Counter[str]] = {task: Counter() for task in tasks}
        self._counted: deque[tuple[str, int]] = deque(maxlen=3000)
        self._counted_set: set[tuple[str, int]] = set()
        self._lanes: list[str] = []
        self._ticks: deque[tuple[float, int]] = deque(maxlen=400)  # when, and runs until then
        self._seen: Snapshot
        self._details: Details

    def take(self, seen: Snapshot, details: Details) -> None:
        """Take note of what a look at the store showed."""
        self._seen = seen
        self._details = details
        for run in seen.recent:
            key = (run.id, run.finished)
            if key in self._counted_set:
                continue
            if len(self._counted) == self._counted.maxlen:
                self._counted_set.discard(self._counted[0])
            self._counted.append(key)
            self._counted_set.add(key)
            self._outcomes[run.task][run.outcome] += 1
        self._lanes += sorted({job.lane for job in details.blocked if job.lane} - set(self._lanes))
        self._ticks.append((time.monotonic(), seen.totals["processed"] + seen.totals["failed"]))

    def picture(self, shown: Demo, width: int, height: int) -> RenderableType:
        """Paint everything in so many columns and rows."""
        gap = [Text("")] if height >= ROOMY else []
        parts: list[RenderableType] = [self._title(shown, width), self._pulse(width), Text("")]
        parts += [self._queues(), *gap, self._running(), *gap, self._lanes_and_dead(width), *gap]
        used = 3 + (1 + len(self._seen.queues)) + (1 + len(self._tasks)) + (1 + LANE_LINES) + 3 * len(gap)
        parts.append(self._runs(max(height - used - 1, 1)))
        return Group(*parts)

    # -- its parts -------------------------------------------------------------------------------------------

    def _title(self, shown: Demo, width: int) -> Text:
        share = min(shown.elapsed / shown.seconds, 1.0)
        bar = max(width - 58, 10)
        filled = round(share * bar)
        phase = (
            f"{min(shown.elapsed, shown.seconds):3.0f} of {shown.seconds:g} s"
            if shown.producing
            else "stopping"
            if shown.interrupted
            else "finishing"
        )
        return Text.assemble(
            ("Laneway ", HEAD), "a small shop at work  ", ("━" * filled, "green"), ("━" * (bar - filled), "bright_black"),
            f"  {phase:12}", ("Ctrl-C ends it", "bright_black"), no_wrap=True, overflow="crop",
        )  # fmt: skip

    def _pulse(self, width: int) -> Text:
        size = max(width - 54, 10)
        rates = self._rates(size)
        totals = self._seen.totals
        return Text.assemble(
            (f"{sparkline(rates):>{size}}", "green"), f" {sum(rates[-4:]) / len(rates[-4:]) if rates else 0:3.0f}/s  ",
            f"enqueued {totals['enqueued']:<5}", ("done ", "green"), f"{totals['processed']:<5}",
            ("retried ", "yellow"), f"{totals['retried']:<4}", ("dead ", "red"), f"{totals['dead']:<3}",
            no_wrap=True, overflow="crop",
        )  # fmt: skip

    def _rates(self, size: int) -> list[float]:
        """Runs a second, in half seconds, the newest last."""
        rates: list[float] = []
        ticks = list(self._ticks)
        for i in range(len(ticks) - 1, 1, -2):
            (before, few), (after, many) = ticks[i - 2], ticks[i]
            rates.append((many - few) / (after - before))
        return rates[size - 1 :: -1] if len(rates) >= size else rates[::-1]

    def _queues(self) -> Table:
        table = _grid(("queue", 14, "left"), *((state, 10, "right") for state in STATES))
        for queue in self._seen.queues:
            numbers = [_number(queue.counts[state], STATE_COLOURS[state]) for state in STATES]
            table.add_row(f"{queue.name}{' (paused)' if queue.paused else ''}", *numbers)
        return table

    def _running(self) -> Table:
        table = _grid(("task", 14, "left"), ("now", 30, "left"), *((name, 10, "right") for name in ("done", "retried", "dead")))
        for task in self._tasks:
            jobs = [job for job in self._details.running if job.task == task]
            counted = self._outcomes[task]
            numbers = [_number(counted[name], OUTCOME_COLOURS[name]) for name in ("done", "retrying", "dead")]
            progress = next((job.progress for job in jobs if job.progress), None)
            table.add_row(task, _bar(*progress) if progress else Text("●" * min(len(jobs), 30), "green"), *numbers)
        return table

    def _lanes_and_dead(self, width: int) -> Table:
        waiting = Counter(job.lane for job in self._details.blocked)
        left = 34
        table = Table.grid()
        table.add_column(width=left, no_wrap=True)
        table.add_column(width=width - left, no_wrap=True, overflow="ellipsis")
        table.add_row(Text("blocked jobs by lane", HEAD), Text("dead, the latest", HEAD))
        dead = list(reversed(self._details.dead[-LANE_LINES:]))
        for line in range(LANE_LINES):
            pair = Text()
            for lane in self._lanes[line : LANE_LINES * 2 : LANE_LINES]:
                pair.append(f"{clip(lane, 5)} ").append(clip("▪" * min(waiting[lane], 9), 11), "magenta")
            died = Text()
            if line < len(dead) and dead[line].errors:
                error = dead[line].errors[-1]
                died.append(f"{dead[line].task}  ").append(f"{error.kind.rpartition('.')[2]}: {error.message}", "red")
            table.add_row(pair, died)
        return table

    def _runs(self, lines: int) -> Table:
        table = _grid(
            ("last runs", 10, "left"), ("", 14, "left"), ("", 10, "left"), ("", 10, "left"), ("", 10, "left"), ("", 9, "right")
        )
        for run in self._seen.recent[:lines]:
            table.add_row(*_run_cells(run))
        return table


def _grid(*columns: tuple[str, int, str]) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style=HEAD, show_edge=False)
    for name, width, side in columns:
        table.add_column(name, width=width, justify="right" if side == "right" else "left", no_wrap=True, overflow="ellipsis")
    return table


def _number(value: int, colour: str) -> Text:
    return Text(str(value), colour) if value else Text("·", "bright_black")


def _bar(done: float, total: float) -> Text:
    share = min(max(done / total if total else 0.0, 0.0), 1.0)
    filled = round(share * 20)
    return Text.assemble(("━" * filled, "green"), ("━" * (20 - filled), "bright_black"), f" {share:4.0%}")


def _run_cells(run: Run) -> list[Text | str]:
    took = duration((run.finished - run.started) / SECOND) if run.started else "-"
    return [
        Text(clock(run.finished / SECOND), "bright_black"),
        run.task,
        Text(short_id(run.id), "bright_black"),
        run.lane or "-",
        Text(run.outcome, OUTCOME_COLOURS[run.outcome]),
        took,
    ]


# -- status ------------------------------------------------------------------------------------------------------


def print_status(seen: Snapshot) -> None:
    """Print a store's figures as tables."""
    console = Console(highlight=False)
    console.print(Text(seen.store, HEAD), soft_wrap=True)
    console.print()
    queues = Table(box=None, pad_edge=False, header_style=HEAD)
    queues.add_column("queue", overflow="ellipsis", no_wrap=True)
    for state in STATES:
        queues.add_column(state, justify="right", no_wrap=True)
    for queue in seen.queues:
        name = Text.assemble(queue.name, (" paused", "yellow") if queue.paused else "")
        queues.add_row(name, *(_number(queue.counts[state], STATE_COLOURS[state]) for state in STATES))
    queues.add_section()
    queues.add_row(Text("all", HEAD), *(_number(seen.counts[state], STATE_COLOURS[state]) for state in STATES))
    console.print(queues)
    console.print()
    console.print("totals  " + "  ".join(f"{name} {number}" for name, number in seen.totals.items()))
    if not seen.recent:
        return
    console.print()
    runs = Table(box=None, pad_edge=False, header_style=HEAD)
    for column in ("last runs", "task", "id", "lane", "outcome"):
        runs.add_column(column, no_wrap=True, overflow="ellipsis")
    runs.add_column("took", justify="right", no_wrap=True)
    for run in seen.recent:
        runs.add_row(*_run_cells(run))
    console.print(runs)
