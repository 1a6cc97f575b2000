"""`laneway top`: what the store's queues, workers and jobs do, as it happens."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliCommand, app_argument, app_options, echo_json, examples, json_option, opened
from laneway.cli.status import document
from laneway.cli.values import DURATION
from laneway.config import safe_url
from laneway.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.present.snapshot import Details, Snapshot

__all__ = ["Top", "top"]

RUNS = 200


@click.command(
    "top",
    cls=CliCommand,
    epilog=examples("laneway top", "laneway top shop.jobs:app", "laneway top --store sqlite:///jobs.db --every 5"),
)
@app_argument
@click.option(
    "--every", metavar="DURATION", type=DURATION, default=1.0, show_default=True, help="The time between two looks at the store."
)
@app_options
@json_option
def top(app_name: str | None, every: float, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Watch queues, workers and jobs, live. q ends it.

    Where there is no terminal it looks once.
    """
    with opened(app_option, store, app_name) as app:
        if as_json:
            from laneway.present.snapshot import Snapshot  # noqa: PLC0415 - the help needs none of it

            echo_json(document(Snapshot.of(app, RUNS)))
            return
        try:
            from laneway.cli.live import print_once, watch  # noqa: PLC0415 - rich, an extra
        except ModuleNotFoundError:
            raise ConfigError('laneway top needs the package rich: pip install "laneway[top]". Or use laneway status') from None

        shown = Top(app, max(every, 0.1))
        if not sys.stdout.isatty():
            print_once(shown)
            return
        with contextlib.suppress(KeyboardInterrupt), _keys():
            watch(shown)


class Top:
    """A store that is watched until the user presses q."""

    hint = "q ends it"
    share = None

    def __init__(self, app: App, every: float) -> None:
        self.every = every
        self.name = safe_url(app.url)
        self._app = app
        self._last: tuple[Snapshot, Details] | None = None
        self._away = False

    @property
    def phase(self) -> str:
        """The time of day; or that nothing is updated, since the store is away."""
        return time.strftime("%H:%M:%S") + (", the store is away: this is how it was" if self._away else "")

    def look(self) -> tuple[Snapshot, Details]:
        """Look at the store. While it is away nothing changes; but at first it must be there."""
        from laneway.present.snapshot import Details, Snapshot  # noqa: PLC0415 - the help needs none of it

        try:
            seen = Snapshot.of(self._app, RUNS)
            self._last, self._away = (seen, Details.of(self._app, seen)), False
        except StoreUnavailable:
            if self._last is None:
                raise
            self._away = True
        return self._last

    def done(self, seen: Snapshot) -> bool:  # noqa: ARG002 - as others that can be watched
        """It has no end of its own."""
        return False

    @staticmethod
    def rest(seconds: float) -> bool:
        """Wait for a key; q, Escape and Ctrl-D end it."""
        if not sys.stdin.isatty():
            time.sleep(seconds)
            return False
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return False
        return sys.stdin.read(1) in ("q", "Q", "\x1b", "\x04", "")


@contextlib.contextmanager
def _keys() -> Generator[None]:
    """Read keys as they are pressed, and do not show them."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 - for terminals only
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
