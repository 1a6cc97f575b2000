"""A zygote as its supervisor sees it: started by exec, so that it inherits no state of the supervisor."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import cast

from laneway.errors import ConfigError
from laneway.fleet.messages import AppReport, MessageSocket
from laneway.fleet.settings import FleetSettings
from laneway.kernel import Process, open_pidfd

__all__ = ["UNKILLABLE", "ZygoteHandle", "reap"]

#: How long a process may take to end after SIGKILL before the supervisor stops waiting for it, seconds.
UNKILLABLE = 3.0

_PROGRAM = "import sys; sys.path[:] = {path!r}; from laneway.fleet.zygote import main; main({fd})"


class ZygoteHandle:
    """A process that has loaded the app and forks workers."""

    def __init__(self, plan: FleetSettings) -> None:
        self.report: AppReport | None = None  #: once it has loaded the app
        self.wire, theirs = MessageSocket.pair()
        program = _PROGRAM.format(path=sys.path, fd=theirs.fileno())
        flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined] # pyright: ignore
        if plan.reload:
            flags.append("-B")  # compiled code is known by a second and a size: it could be that of the version before
        command = [sys.executable or "", *flags, "-P", "-c", program]
        try:
            with theirs:
                self._popen = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603 - ours
        except OSError as error:
            self.wire.close()
            raise ConfigError(f'the Python that runs here, "{sys.executable}", cannot be started: {error.strerror}') from None
        self.process = Process(self._popen.pid, open_pidfd(self._popen.pid))
        self.code: int | None = None  #: its exit code
        self.failed = False  #: it has reported why it cannot load the app
        self.killed = False  #: the supervisor has killed it, and its workers with it
        self.wire.post(plan)  # not by its arguments: every user can read those, and a store's URL may hold a password

    def ended(self, code: int) -> None:
        """Note that it was reaped."""
        self.code = self._popen.returncode = code

    def kill(self) -> None:
        """Kill it, and with it all processes that it has forked."""
        self.killed = True
        self.process.kill()

    def end(self, *, at_once: bool = False) -> None:
        """Let it end, and wait for that; a zygote that hangs is killed, with `at_once` any."""
        self.wire.close()
        if self.report is None or at_once:
            self.process.kill()  # while it loads the app it does not see the socket close
        if self.code is None:
            try:
                self.code = self._popen.wait(1.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel does not end it: give up
                    self.code = self._popen.wait(UNKILLABLE)
        self.process.close()


def reap() -> dict[int, int]:
    """Reap all children; as the first process of a container also orphans of other processes."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
