"""`laneway demo`: a small shop at work, to watch.

A producer enqueues, a worker runs, each in a thread; the main thread shows what the store tells, and hears Ctrl-C. The dashboard
is served beside them where it is installed, so the same can be seen in a browser, and acted upon. When the time is over the
producer stops, what is due gets a few seconds to end, and a summary says what happened: the store's own totals, and the verdict
of the shop's ledger on whether every lane was in order. If a user acted by hand (deleted a job, replayed a dead one), the
shop cannot check sums or order, and checks only that no lane ran two jobs at once.

Enters: how long.  Leaves: something to look at.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliCommand, examples
from laneway.cli.dashboard import beside
from laneway.cli.show import wants_colour
from laneway.present.words import plural

if TYPE_CHECKING:
    from laneway.cli.demo_shop import LedgerCheck, Producer
    from laneway.desk.app import App
    from laneway.present.snapshot import Details, Snapshot
    from laneway.worker import Worker

__all__ = ["Demo", "demo"]

#: After the producing, what still waits may take this long: reminders are three seconds ahead, a report takes three.
PATIENCE = 7.0
SLOTS = 25
#: How long the shop is open: on a terminal long enough to look around in the dashboard, too.
ON_TERMINAL, IN_A_PIPE = 60.0, 10.0


@click.command("demo", cls=CliCommand, epilog=examples("laneway demo", "laneway demo --seconds 300 --open"))
@click.option(
    "--seconds", metavar="N", envvar="DEMO_SECONDS", type=click.FloatRange(min=0.5, max=86_400),
    help="How long the shop is open: 60, or 10 if not on a terminal. DEMO_SECONDS does the same.",
)  # fmt: skip
@click.option("--open", "in_browser", is_flag=True, help="Show the dashboard in a browser at once.")
@click.pass_context
def demo(ctx: click.Context, seconds: float | None, in_browser: bool) -> None:
    """Watch a small shop at work, here and in the dashboard."""
    from laneway.cli.demo_shop import app, check, ledger  # noqa: PLC0415 - the help needs none of it

    on_terminal = sys.stdout.isatty()
    hands = _Hands()
    with tempfile.TemporaryDirectory(prefix="laneway-demo-") as folder, _quietly(hands):
        app.use_store(f"sqlite:///{folder}/shop.db")
        shown = Demo(app, seconds or (ON_TERMINAL if on_terminal else IN_A_PIPE))
        try:
            with shown.at_work(), _dashboard(app) as url:
                _say_where(url, in_browser)
                if url is not None:
                    shown.name = f"shop at {url}"
                (_live() if on_terminal else _print_every_second)(shown)
            seen = shown.snapshot()
            dead = app.inspect.jobs("dead", limit=10_000)
        finally:
            app.close()
    verdict = check(ledger, {tuple(job.args or ()) for job in dead if job.task == "charge"}, in_order=not hands.acts)
    kinds = Counter(job.errors[-1].kind.rpartition(".")[2] for job in dead if job.errors)
    totals = seen.totals  # what was enqueued and is neither done, nor dead, nor in the store, is lost: there must be none
    lost = 0 if hands.acts else totals["enqueued"] - totals["processed"] - totals["dead"] - seen.unfinished
    summary = [*_summary(shown, seen, kinds), *_lanes(verdict, hands.acts)]
    if lost:
        summary.append(f"  LOST: {lost} jobs. Please report this.")
    click.echo("\n".join([*summary, ""]), color=wants_colour(sys.stdout))
    if verdict.mistakes or lost:
        ctx.exit(1)


class _Hands(logging.Handler):
    """Counts actions by hand, from the dashboard's own audit."""

    acts = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Hear of an action."""
        fields: dict[str, object] = getattr(record, "audit", {})
        self.acts += str(fields.get("result")).startswith(("done", "accepted"))


@contextmanager
def _quietly(hands: _Hands) -> Generator[None]:
    """Write no log: failures are part of the show, and have their place in it."""
    for name in ("laneway", "uvicorn"):
        log = logging.getLogger(name)
        log.propagate = False
        log.addHandler(logging.NullHandler())
    audit = logging.getLogger("laneway.audit")
    audit.setLevel(logging.INFO)
    audit.addHandler(hands)
    try:
        yield
    finally:
        audit.removeHandler(hands)


@contextmanager
def _dashboard(app: App) -> Generator[str | None]:
    """Serve the dashboard and give its address; none where it is not installed."""
    with ExitStack() as stack:
        url = None
        with suppress(ModuleNotFoundError):
            url = stack.enter_context(beside(app))
        yield url


def _say_where(url: str | None, in_browser: bool) -> None:
    if url is None:
        click.echo('dashboard: not installed. To see this in a browser: pip install "laneway[web]"')
        return
    click.echo(f"dashboard: {url} as long as the shop is open")
    sys.stdout.flush()
    if in_browser:
        import webbrowser  # noqa: PLC0415 - hardly ever needed

        if not webbrowser.open(url):
            click.echo("no browser was found here: open that address yourself")


class Demo:
    """The shop while it is open: each question for `done` moves it on."""

    every = 0.25
    name = "a small shop at work"
    hint = "Ctrl-C ends it"

    def __init__(self, app: App, seconds: float) -> None:
        self._app = app
        self.seconds = seconds
        self.interrupted = False
        self.failure: BaseException | None = None
        self._opened = self._closed = 0.0
        self._producer: Producer
        self._worker: Worker
        self._thread: threading.Thread
        self._in_haste = False

    @property
    def elapsed(self) -> float:
        """Seconds since it opened."""
        return (self._closed or time.monotonic()) - self._opened

    @property
    def producing(self) -> bool:
        """Whether jobs are still being enqueued."""
        return self._producer.is_alive()

    @property
    def share(self) -> float:
        """How much of it is over."""
        return min(self.elapsed / self.seconds, 1.0)

    @property
    def phase(self) -> str:
        """What it does now."""
        if self.producing:
            return f"{min(self.elapsed, self.seconds):3.0f} of {self.seconds:g} s"
        return "stopping" if self.interrupted else "finishing"

    def look(self) -> tuple[Snapshot, Details]:
        """Look at the store, and at single jobs."""
        from laneway.present.snapshot import Details  # noqa: PLC0415

        seen = self.snapshot()
        return seen, Details.of(self._app, seen)

    @staticmethod
    def rest(seconds: float) -> bool:
        """Wait."""
        time.sleep(seconds)
        return False

    def snapshot(self) -> Snapshot:
        """Look at the store."""
        from laneway.present.snapshot import Snapshot  # noqa: PLC0415

        return Snapshot.of(self._app, 1000)

    def done(self, seen: Snapshot) -> bool:
        """Say whether it is over: the producer is stopped when the time has come, and the worker when nothing is left."""
        if not self._thread.is_alive():
            self._closed = time.monotonic()
            return True
        if self.elapsed < self.seconds and not self.interrupted:
            return False
        if self.producing:
            self._producer.stop()  # what was seen is older than its last jobs: look again
        elif self.interrupted or not seen.unfinished or self.elapsed > self.seconds + PATIENCE:
            self._worker.stop()
        return False

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Open the shop, and close it: what runs may end."""
        from laneway.cli.demo_shop import Producer  # noqa: PLC0415
        from laneway.worker import Worker  # noqa: PLC0415

        self._producer = Producer()
        self._worker = Worker(self._app, SLOTS, shutdown_timeout=5.0)
        self._app.inspect.counts()  # the store opens here, where its errors are seen
        self._thread = threading.Thread(target=self._work, name="demo-worker", daemon=True)
        self._opened = time.monotonic()
        self._thread.start()
        self._producer.start()
        try:
            with _interrupts(self._interrupt):
                yield
        finally:
            self._producer.stop()
            self._worker.stop()
            self._thread.join(0 if self._in_haste else 10)
            self._closed = self._closed or time.monotonic()
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.failure = error

    def _interrupt(self) -> None:
        if self.interrupted:
            self._in_haste = True
            raise KeyboardInterrupt
        self.interrupted = True


@contextmanager
def _interrupts(call: Callable[[], None]) -> Generator[None]:
    """Call on Ctrl-C and SIGTERM instead of ending the program."""

    def handle(_: int, __: FrameType | None) -> None:
        call()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _live() -> Callable[[Demo], None]:
    """Return what shows the demo on a terminal: the live view, or lines where it is not installed."""
    try:
        from laneway.cli.live import watch  # noqa: PLC0415 - rich, an extra
    except ModuleNotFoundError:
        click.echo('live view: not installed. To see more than these lines: pip install "laneway[top]"')
        return _print_every_second
    return watch


def _print_every_second(shown: Demo) -> None:
    """What a log file gets instead of the live view."""
    said = 0
    while not shown.done(seen := shown.snapshot()):
        if shown.elapsed >= said + 1:
            said = int(shown.elapsed)
            totals, counts = seen.totals, seen.counts
            waiting = seen.unfinished - counts["running"]
            click.echo(
                f"{said:3} s  enqueued {totals['enqueued']:4}  done {totals['processed']:4}  retried {totals['retried']:3}"
                f"  dead {totals['dead']:2}  waiting {waiting:3}  running {counts['running']:2}"
            )
        time.sleep(0.05)


def _summary(shown: Demo, seen: Snapshot, kinds: Counter[str]) -> list[str]:
    totals = seen.totals
    rows = [
        ("enqueued", totals["enqueued"], "jobs of six tasks in three queues"),
        ("done", totals["processed"], f"{totals['processed'] / max(shown.elapsed, 1e-9):.0f} a second"),
        ("retried", totals["retried"], "attempts that failed and were made again"),
        ("dead", totals["dead"], f"gave up: {', '.join(f'{kind} {n}' for kind, n in kinds.most_common())}" if kinds else ""),
    ]
    if seen.unfinished:
        left = ", ".join(f"{number} {state}" for state, number in seen.counts.items() if number and state != "dead")
        rows.append(("left", seen.unfinished, f"not done when you stopped: {left}" if shown.interrupted else left))
    return [
        "",
        f"The shop was open for {shown.elapsed:.0f} s: one worker, {SLOTS} slots, jobs in an SQLite file.",
        "",
        *(f"  {name:9}{number:6}   {note}".rstrip() for name, number, note in rows),
        "",
    ]


def _lanes(verdict: LedgerCheck, acts: int) -> list[str]:
    """Say whether the lanes kept their promise, by the ledger that the charges wrote themselves."""
    if verdict.mistakes:
        return [
            click.style(f"  Lanes BROKE their promise {len(verdict.mistakes)} times. Please report this:", fg="red"),
            *(f"    {mistake}" for mistake in verdict.mistakes[:10]),
        ]
    charges = f"{verdict.charges} charges in {verdict.lanes} lanes, one for each customer, in {verdict.runs} runs."
    if acts:
        return [
            f"  {click.style('One at a time:', fg='green')} {charges}",
            f"  You acted by hand ({plural(acts, 'time')}): their order and the sums are yours, and not checked.",
        ]
    return [
        f"  {click.style('In order:', fg='green')} {charges}",
        "  In every lane one ran at a time, and none began before the one in front was",
        "  done or dead. Checked against the ledger that the charges themselves wrote.",
    ]
