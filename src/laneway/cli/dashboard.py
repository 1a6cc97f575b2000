"""`laneway dashboard`: serve an app's dashboard and API; or serve it beside something else, as the demo does."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliCommand, app_argument, app_options, examples, json_option, opened, said
from laneway.config import safe_url
from laneway.errors import ConfigError

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["beside", "dashboard"]

#: On this address only programs of this machine can connect.
LOOPBACK = "127.0.0.1"


@click.command(
    "dashboard", cls=CliCommand,
    epilog=examples(
        "laneway dashboard",
        "laneway dashboard shop.jobs:app --port 9000 --read-only",
        "laneway dashboard --store redis://db/0 --host 0.0.0.0",
    ),
)  # fmt: skip
@app_argument
@click.option("--host", metavar="HOST", default=LOOPBACK, show_default=True, help="Where to listen.")
@click.option("--port", metavar="N", type=click.IntRange(0, 65_535), default=8080, show_default=True, help="0 takes a free one.")
@click.option("--read-only", is_flag=True, help="Allow no actions.")
@click.option("--open-health", is_flag=True, help="/healthz needs no credentials; its answer then has no reasons.")
@app_options
@json_option
def dashboard(
    app_name: str | None, host: str, port: int, read_only: bool, open_health: bool, app_option: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Serve the dashboard, its API, /healthz and /metrics.

    On this machine it is open to this machine alone. Elsewhere it needs credentials: LANEWAY_DASHBOARD_USER and
    LANEWAY_DASHBOARD_PASSWORD, or LANEWAY_DASHBOARD_TOKEN. It needs laneway[web].
    """
    try:
        from laneway.web import dashboard as make  # noqa: PLC0415 - the help needs none of it
        from laneway.web.server import Server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(f'laneway dashboard needs {error.name}: pip install "laneway[web]"') from None
    with opened(app_option, store, app_name, tasks=True, looks=False) as app:
        _check_url(app)
        site = make(app, read_only=read_only, open_health=open_health)
        _check_host(host, guarded=site.state.laneway.access.guarded)
        listening = _listen(host, port)
        url = _url(host, listening.getsockname()[1])
        text = f"dashboard of {safe_url(app.url)} on {url}{', read-only' if read_only else ''}. Ctrl-C ends it"
        said(text, {"url": url, "store": safe_url(app.url), "read_only": read_only}, as_json)
        sys.stdout.flush()
        _start_logging()
        Server(site, site.state.laneway.live.close).run(sockets=[listening])


@contextmanager
def beside(app: App) -> Generator[str]:
    """Serve an app's dashboard to this machine while something else goes on; gives its address, on a port that was free.

    The server's thread gets no signals. It has ended when this has, unless a second Ctrl-C wants it all to end at once.
    """
    from laneway.web import dashboard as make  # noqa: PLC0415 - it needs an extra
    from laneway.web.server import GRACE, Server  # noqa: PLC0415

    site = make(app)
    server = Server(site, site.state.laneway.live.close)
    listening = _listen(LOOPBACK, 0)
    thread = threading.Thread(target=server.run, args=([listening],), name="dashboard", daemon=True)
    thread.start()
    try:
        yield _url(LOOPBACK, listening.getsockname()[1])
    except KeyboardInterrupt:
        server.force_exit = True
        raise
    finally:
        server.should_exit = True
        site.state.laneway.live.close()
        thread.join(0.5 if server.force_exit else GRACE + 1)
        listening.close()


def _check_url(app: App) -> None:
    from laneway.store import check_url  # noqa: PLC0415 - the help needs none of it

    if not check_url(app.url).path:
        raise ConfigError(f"{app.url} is a store in the memory of one process: no other can look at it")


def _check_host(host: str, *, guarded: bool) -> None:
    """Refuse to be open to all."""
    from laneway.web.access import is_loopback  # noqa: PLC0415 - the help needs none of it

    if not guarded and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines, and there are no credentials: set LANEWAY_DASHBOARD_USER and "
            "LANEWAY_DASHBOARD_PASSWORD, or LANEWAY_DASHBOARD_TOKEN; or leave out --host and use an SSH tunnel"
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host} port {port}: {error.strerror}. Choose another with --port") from None


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _start_logging() -> None:
    """Show what is done (`laneway.audit`) and what goes wrong, unless the app has set up logging itself."""
    log = logging.getLogger("laneway")
    if not logging.getLogger().handlers and not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
