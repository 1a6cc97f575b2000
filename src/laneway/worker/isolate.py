"""Isolated runs: one claim, one process.

The worker asks a process that forks (the fleet's zygote, or a small one of its own) for a child, and sends it the claim once the
child is known to the process that must end it. The slot's thread reads what the child sends: notes on the way, and the outcome.
A child that ends without an outcome has crashed. It runs again at once, isolated; after three crashes the job is dead.

Enters: a `Claim`.  Leaves: an `Outcome`, or the reason why there is none.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from laneway.core.job import Claim
from laneway.core.outcome import Notes, Outcome
from laneway.desk.context import JobContext
from laneway.desk.lifespan import Lifespans
from laneway.errors import LifespanError
from laneway.events import RunEnded, RunStarted, WorkerStarted, WorkerStopped
from laneway.kernel import Process, cause_of_death, die_with, kill_group, set_title
from laneway.logs import log
from laneway.worker.duties.service import Service
from laneway.worker.event_loop import LoopThread, OwnLoop

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.fleet.messages import MessageSocket

__all__ = ["IsolatedEnd", "Isolation", "run_isolated"]

#: A child that has not ended this long after its timeout is killed, seconds: it had time to clean up.
CLEAN_UP = 0.25
#: The least time that a child has to end after its outcome, seconds.
LAST_WORDS = 1.0


class Begun(Struct, frozen=True):
    """The child's lifespans and hooks have run, and the job begins: its timeout counts from now."""

    name: ClassVar[str] = "begun"


class IsolatedEnd(Struct, frozen=True):
    """How a child ended."""

    outcomes: tuple[Outcome, ...] = ()  #: of its claim's units; none if it did not get that far
    code: int | None = None  #: the exit code, if the child sent no outcomes; None: the process was never made
    killed: bool = False  #: the worker killed it: on timeout, or when it was cancelled

    @property
    def said(self) -> str:
        """The error message for a crash."""
        return f"the process that ran it alone ended with {cause_of_death(self.code or 0)}"


#: Made here, before there are threads: msgspec inspects a type when it first meets it, and other threads that meet it meanwhile
#: find it half done, and crash the process.
_SAID = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_NOTES = msgspec.msgpack.Decoder(Notes)
_KINDS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "notes": _NOTES, Begun.name: msgspec.msgpack.Decoder(Begun), "outcomes": msgspec.msgpack.Decoder(tuple[Outcome, ...]),
}  # fmt: skip


class Isolation:
    """Creates processes for single runs of a worker."""

    def __init__(self, app: App, wire: MessageSocket | None, shutdown_timeout: float, loop: str) -> None:
        self._app = app
        self._loop = loop
        self._last_words = max(shutdown_timeout, LAST_WORDS)  # how long a child may take to end after its outcome, seconds
        self._wire = wire
        self._in_fleet = wire is not None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Start a process that forks, before this program has threads that a fork would lose."""
        with self._lock:
            if self._wire is not None and self._wire.closed:
                self._wire.close()
                self._wire = None
            if self._wire is None:
                self._wire = _fork_forker(self._app, self._loop)

    def run(self, claim: Claim, timeout: float | None, job: JobContext) -> IsolatedEnd:
        """Run a claim in a child, and wait for its end."""
        from laneway.fleet.messages import Isolate, MessageSocket  # noqa: PLC0415 - only workers with isolated runs need it

        self.prepare()  # before the sockets: a forker that inherits them keeps them open
        forker, forker_theirs = MessageSocket.pair()
        run_socket, run_socket_theirs = socket.socketpair()
        with contextlib.closing(forker), run_socket, forker_theirs, run_socket_theirs:
            with self._lock:
                fds = [forker_theirs.fileno(), run_socket_theirs.fileno()]
                asked = self._wire is not None and self._wire.send(Isolate(claim.token), fds)
            forker_theirs.close()
            run_socket_theirs.close()
            if not asked:
                return IsolatedEnd()
            with contextlib.closing(_Talk(forker, run_socket, claim)) as talk:
                return self._attend(talk, timeout, job)

    def close(self) -> None:
        """Close the socket to the forker."""
        if self._wire is not None:
            self._wire.close()

    def _attend(self, talk: _Talk, timeout: float | None, job: JobContext) -> IsolatedEnd:
        over = float("inf")
        outcomes: tuple[Outcome, ...] = ()
        code: int | None = None
        # When the child has ended, everything it sent can be read. Its socket may still be open in processes that it forked.
        while code is None and not talk.ended:
            talk.wait(over - time.monotonic())
            code = talk.read_forker(code)
            for said in talk.read_run():
                if isinstance(said, Notes):
                    job.take_notes(said)
                elif isinstance(said, Begun):
                    over = float("inf") if timeout is None else time.monotonic() + timeout + CLEAN_UP
                else:
                    outcomes, over = said, time.monotonic() + self._last_words  # the timeout does not include what comes then
            if job.cancelled or time.monotonic() >= over:
                if outcomes and not job.cancelled:
                    log.warning("job %s: its process did not exit %g s after the run; sending SIGKILL", job.id, self._last_words)
                talk.kill()
                over = float("inf")
        if code is None and not outcomes:
            self._forker_is_gone(talk.child)
        return IsolatedEnd(outcomes, code, killed=talk.killed)

    def _forker_is_gone(self, child: Process | None) -> None:
        """Make sure that the child of a dead forker is gone: no other worker may run its claim before that.

        The kernel closes a dying process's sockets first and ends its children last: in between the children still run. In a
        fleet this worker is a child of the same zygote: it exits now, and its supervisor gives back its claims when all children
        are gone.
        """
        if self._in_fleet:
            os._exit(1)
        while child is not None and not child.is_gone():
            child.kill()
            time.sleep(0.005)


class _Talk:
    """An isolated run: its child, and the two sockets to the child's forker and to the child."""

    def __init__(self, forker: MessageSocket, run_socket: socket.socket, claim: Claim) -> None:
        self._forker = forker
        self._run_socket = run_socket
        self._claim = claim
        self.child: Process | None = None  #: None until it has been made
        self.killed = False
        self._rest = b""
        self._is_open = True

    @property
    def ended(self) -> bool:
        """Whether the forker of the child is gone, and the child with it."""
        return self._forker.closed

    def wait(self, timeout: float) -> None:
        """Wait for something to read; wake now and then to check for a cancellation."""
        poll = select.poll()
        for end, is_open in ((self._forker, not self._forker.closed), (self._run_socket, self._is_open)):
            if is_open:
                poll.register(end.fileno(), select.POLLIN)
        poll.poll(max(min(timeout, 0.5), 0) * 1000)

    def read_forker(self, code: int | None) -> int | None:
        """Hear that the child was made, and send it its claim; return its exit code if it has ended."""
        from laneway.fleet.messages import Child, Ended  # noqa: PLC0415

        for message in self._forker.read():
            if isinstance(message, Child):
                self.child = Process(message.pid, self._forker.take_fds(message.fds))
                if self.killed:  # its time was up before it existed
                    self.kill()
                data = msgspec.msgpack.encode(self._claim)
                with contextlib.suppress(OSError):
                    self._run_socket.sendall(len(data).to_bytes(4) + data)
            elif isinstance(message, Ended):
                code = message.code
        return code

    def kill(self) -> None:
        """End the child."""
        self.killed = True
        if self.child is not None:
            kill_group(self.child.pid)  # the zygote has not reaped it: the pid is still its own
            self.child.kill()

    def read_run(self) -> list[Notes | Begun | tuple[Outcome, ...]]:
        """Return the child's messages."""
        while self._is_open:
            try:
                data = self._run_socket.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self._is_open = bool(data)
            self._rest += data
        said: list[Notes | Begun | tuple[Outcome, ...]] = []
        while len(self._rest) >= 4 and len(self._rest) >= 4 + (size := int.from_bytes(self._rest[:4])):
            name, value = _SAID.decode(self._rest[4 : 4 + size])
            said.append(_KINDS[name].decode(value))
            self._rest = self._rest[4 + size :]
        return said

    def close(self) -> None:
        """Close the handle of the child."""
        if self.child is not None:
            self.child.close()


def _fork_forker(app: App, loop: str) -> MessageSocket:
    """Make a process that forks for this worker alone, as the zygote does for a fleet."""
    from laneway.fleet.forker import Forker  # noqa: PLC0415
    from laneway.fleet.messages import MessageSocket  # noqa: PLC0415

    ours, theirs = MessageSocket.pair()
    us = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # The child has none of this program's threads, and uses nothing that they hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        theirs.close()
        threading.Thread(target=os.waitpid, args=(pid, 0), name="laneway-reaper", daemon=True).start()
        return ours
    try:
        die_with(us)
        set_title("zygote of a worker inside a program")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ours.close()
        forker = Forker(MessageSocket(theirs), _no_worker, lambda fd: run_isolated(app, fd, loop))
        forker.serve()
        forker.kill_all()
    finally:
        os._exit(0)


def _no_worker(*_: object) -> None:
    raise NotImplementedError("a worker inside a program forks for isolated runs only")


# -- inside the child --------------------------------------------------------------------------------------------


def run_isolated(app: App, fd: int, loop: str) -> None:
    """Run one claim in this process, which was forked for it. It leads a process group, which is killed together with it."""
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker that asked for this run decides
    with socket.socket(fileno=fd) as run_socket:
        _run_one(app, run_socket, loop)


def _run_one(app: App, run_socket: socket.socket, kind: str) -> None:
    from laneway.worker.run import Runner  # noqa: PLC0415
    from laneway.worker.worker import Worker  # noqa: PLC0415 - it imports us

    size = _read_exactly(run_socket, 4)
    if size is None or (body := _read_exactly(run_socket, int.from_bytes(size))) is None:
        return  # its worker died before it sent a claim
    claim = msgspec.msgpack.decode(body, type=Claim)
    set_title(f"isolated {claim.task} {claim.unit.id}")
    worker = Worker(app, slots=1, loop=kind)
    events = app.hooks.events
    events.silence(RunStarted)  # the worker sends that event
    events.silence(RunEnded)
    task = app.declared.get(claim.task)
    # An async task runs on a loop in the main thread. Beside a plain task, async lifespans have their loop in another thread.
    loop = (OwnLoop if task is not None and task.is_async else LoopThread)(kind)
    lifespans = Lifespans(app.hooks.lifespans, worker)
    sender = _Sender(run_socket)
    runner = Runner(app.declared, app.hooks, sender.flush, resources=lifespans.resources)
    try:
        with lifespans.around(loop.wait):
            events.tell(WorkerStarted(worker))
            notes = _NotesService(runner, sender)
            notes.start()
            sender.send(Begun.name, Begun())
            settled = runner.run_alone(claim, loop)
            notes.stop()
            sender.send("outcomes", settled.outcomes)  # before hooks and lifespans end: these may fail
            events.tell(WorkerStopped(worker))
    except LifespanError as error:
        sender.send("outcomes", runner.fail(claim, error.__cause__ or error).outcomes)
    loop.close()


class _Sender:
    """Sends messages to the worker, from any thread."""

    def __init__(self, run_socket: socket.socket) -> None:
        self._run_socket = run_socket
        self._lock = threading.Lock()

    def send(self, name: str, value: object) -> None:
        data = msgspec.msgpack.encode((name, msgspec.Raw(msgspec.msgpack.encode(value))))
        with self._lock, contextlib.suppress(OSError):
            self._run_socket.sendall(len(data).to_bytes(4) + data)

    def flush(self, *jobs: JobContext) -> None:
        for job in jobs:
            if job.notes_changed:
                job.notes_changed = False
                self.send("notes", job.notes)


class _NotesService(Service):
    """Sends the notes of the run, twice a second."""

    name = "notes"
    every = 0.5

    def __init__(self, runner: Any, sender: _Sender) -> None:
        super().__init__()
        self._runner = runner
        self._sender = sender

    def tick(self) -> None:
        """Send notes that are new."""
        self._sender.flush(*list(self._runner.running.values()))


def _read_exactly(run_socket: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            more = run_socket.recv(min(size - len(data), 1 << 20))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data
