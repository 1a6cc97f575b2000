"""The zygote: loads the app once, and forks.

Started by exec before anything else. It loads the app, reports its contents (or in one line why it cannot be loaded), and then
only forks: workers for the supervisor, and processes for isolated runs. Since it has loaded everything, a new worker starts
in milliseconds and shares its memory. It opens no connection and starts no thread: both would break in its children.

Enters: `FleetSettings`, then `Fork` and `Isolate`.  Leaves: an `AppReport` or a `Failed`, then processes.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import inspect
import logging
import os
import signal
import socket
import sys
import sysconfig
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from laneway.config import safe_url
from laneway.desk.app import App
from laneway.desk.locate import find_app, load_tasks
from laneway.errors import ConfigError, LanewayError, LifespanError, did_you_mean
from laneway.fleet.forker import Forker
from laneway.fleet.messages import AppReport, Failed, Fork, MessageSocket
from laneway.fleet.settings import FleetSettings
from laneway.kernel import die_with, set_title
from laneway.logs import log, log_context, start_logging
from laneway.store import StoreSettings, backend_of, check_url, open_store
from laneway.worker.board import Board
from laneway.worker.duties.link import FleetLink
from laneway.worker.event_loop import load_loop
from laneway.worker.isolate import run_isolated
from laneway.worker.worker import Worker

__all__ = ["main"]


def main(fd: int) -> None:
    """Be a zygote; never returns."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the supervisor
    set_title("zygote")
    boss = MessageSocket(socket.socket(fileno=fd))
    try:
        plan = boss.wait()
    except EOFError:
        os._exit(1)  # the supervisor was stopped before
    assert isinstance(plan, FleetSettings)  # noqa: S101 - it comes first
    die_with(plan.parent)
    try:
        app = find_app(plan.app.name, plan.app.option, plan.app.store)
        load_tasks(app)
        if plan.connections is not None:
            app.set_connections(plan.connections)
        queues = {queue: plan.weights.get(queue, 1.0) for queue in plan.queues} if plan.weights else plan.queues or None
        worker = Worker(app, plan.slots, queues, balance=plan.balance, shutdown_timeout=plan.shutdown_timeout, loop=plan.loop)
        if not check_url(app.url).path:
            raise ConfigError(
                f'{app.url} lives in the memory of one process: for a fleet use a file, such as "sqlite:///jobs.db"'
            )
    except LanewayError as error:
        boss.send(Failed(" ".join(str(error).split())))
        os._exit(2)
    start_logging(sys.stderr, sorted(app.declared), app.hooks.events, plan.log_level, plan.log_format)
    set_title(f"zygote of {safe_url(app.url)}")
    _warn_of_undeclared_queues(plan.queues, {declared.queue for declared in app.declared.values()})
    boss.send(AppReport(app.url, app.settings, sorted(app.declared), _files()))
    _prepare_to_fork(app, plan.loop)
    forker = Forker(
        boss,
        lambda message, fds, wire: _be_worker(plan, worker, message, fds, wire),
        lambda child_fd: run_isolated(app, child_fd, plan.loop),
    )
    forker.serve()
    forker.kill_all()
    os._exit(0)


def _warn_of_undeclared_queues(queues: Sequence[str], declared: Collection[str]) -> None:
    """Log queues without a declared task: their jobs may come by an option of an enqueue, or the name is mistyped."""
    for queue in queues:
        if queue not in declared:
            near = did_you_mean(queue, declared)
            log.log(logging.WARNING if near else logging.INFO, 'no task here is declared for the queue "%s".%s', queue, near)


def _prepare_to_fork(app: App, loop: str) -> None:
    """Prepare for forking: drop what a child must not inherit, load what all children need, and freeze the memory."""
    app.close()
    open_store(app.url, StoreSettings(**app.settings))  # loads the store's code, and opens nothing
    backend_of(check_url(app.url).scheme).suppress_startup_warnings()  # the supervisor logs them
    for declared in app.declared.values():
        declared.prepare()
    if any(task.is_async for task in app.declared.values()) or any(map(inspect.isasyncgenfunction, app.hooks.lifespans)):
        load_loop(loop)  # for the children
    if "laneway.pool.scheduler" in sys.modules:
        sys.modules["laneway.pool.scheduler"].rest()  # the threads of an idle pool start again in each worker
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            log.warning(
                'the app\'s modules have started the thread "%s": workers do not have it. Start it in an @app.lifespan',
                thread.name,
            )
    gc.collect()
    gc.freeze()


def _files() -> list[str]:
    """Return the files of the user's own loaded modules: neither Python's nor installed, nor Laneway's."""
    theirs = tuple(os.path.join(path, "") for path in {*sysconfig.get_paths().values(), str(Path(__file__).parent.parent)})
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(file for file in files if file and file.endswith(".py") and not file.startswith(theirs))


# -- inside a worker ---------------------------------------------------------------------------------------------


def _be_worker(plan: FleetSettings, worker: Worker, message: Fork, fds: list[int], zygote: MessageSocket) -> None:
    """Run jobs until told to stop."""
    set_title(f"worker {message.number} of {plan.processes}, {safe_url(worker.app.url)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    log_context["worker"] = message.id
    board_fd, stacks_fd, wire_fd = fds
    board = Board(plan.rows, board_fd)
    os.close(board_fd)

    def write_stacks(number: int, frame: object) -> None:  # noqa: ARG001 - as handlers are called; see `stacks`
        faulthandler.dump_traceback(stacks_fd, all_threads=True)

    signal.signal(signal.SIGTTIN, write_stacks)
    faulthandler.register(signal.SIGTTOU, stacks_fd, all_threads=True)
    link = FleetLink(message.id, plan.fleet, board, MessageSocket(socket.socket(fileno=wire_fd)), zygote, plan.max_jobs)
    try:
        worker.run_in(link, burst=plan.burst)
    except LifespanError as error:
        log.error("worker %d does not start: %s", message.number, error, exc_info=error.__cause__)
        sys.exit(1)
    if not board.entries():
        with contextlib.suppress(Exception):
            worker.app.close()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the end of a program, though not of an exec
