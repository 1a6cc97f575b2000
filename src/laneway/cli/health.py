"""`laneway health`: for scripts and container checks. No app is loaded."""

from __future__ import annotations

import click

from laneway.cli.command import CliCommand, examples, json_option, opened, said
from laneway.errors import ConfigError
from laneway.present.words import plural
from laneway.settings import Settings

__all__ = ["health"]


@click.command("health", cls=CliCommand, epilog=examples("laneway health", "laneway health --store redis://localhost:6379/0"))
@click.option("--store", metavar="URL", help="The store. [LANEWAY_URL]")
@json_option
@click.pass_context
def health(context: click.Context, store: str | None, as_json: bool) -> None:
    """Say whether the store answers and workers live.

    Exit code 0 if so, 1 if not. It needs the store's address, and loads no app.
    """
    from laneway.present.snapshot import Snapshot, working_of  # noqa: PLC0415 - the help needs none of it

    url = store or Settings().find("url").value
    if url is None:
        raise ConfigError("which store? Give --store URL, or set LANEWAY_URL: no app is loaded for this command")
    with opened(None, url) as app:
        seen = Snapshot.of(app)
    working = working_of(seen.workers)
    ready = seen.counts["ready"]
    waits = f"{plural(ready, 'job')} ready, the oldest for {seen.lag:.0f} s" if ready else "nothing waits"
    text = f"ok: {plural(len(working), 'worker')}, {waits}" if working else f"no worker lives: {waits}"
    said(text, {"ok": bool(working), "workers": len(working), "ready": ready, "lag": seen.lag}, as_json)
    context.exit(0 if working else 1)
