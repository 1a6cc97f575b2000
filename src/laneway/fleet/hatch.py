"""A zygote as its supervisor sees it: started by exec, so that it begins with nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import cast

from laneway.fleet.member import Process
from laneway.fleet.plan import Plan
from laneway.fleet.wire import Message, Report, Wire
from laneway.kernel import open_pidfd

__all__ = ["Hatchery", "reap"]

_PROGRAM = "import sys; sys.path[:] = {path!r}; from laneway.fleet.zygote import main; main({fd})"


class Hatchery:
    """A process that has loaded the app and forks workers."""

    def __init__(self, plan: Plan) -> None:
        self.report: Report | None = None  #: once it has loaded the app
        self.wire, theirs = Wire.pair()
        program = _PROGRAM.format(path=sys.path, fd=theirs.fileno())
        flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined] # pyright: ignore
        with theirs:
            self._popen = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *flags, "-P", "-c", program], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self.process = Process(self._popen.pid, open_pidfd(self._popen.pid))
        self.code: int | None = None  #: how it ended
        self.failed = False  #: it has said why it cannot load the app
        self.wire.send(plan)  # not by its arguments: everybody can read those, and a store's URL may hold a password

    def read(self) -> list[Message]:
        """Return what it has said."""
        return self.wire.read()

    def ended(self, code: int) -> None:
        """It was reaped."""
        self.code = self._popen.returncode = code

    def close(self) -> None:
        """Let it end: it does when its wire closes."""
        self.wire.close()

    def end(self) -> None:
        """End it now, and see it end."""
        self.wire.close()
        if self.report is None:
            self.process.kill()  # it loads the app, and does not see the wire close
        if self.code is None:
            try:
                self.code = self._popen.wait(1.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.code = self._popen.wait()
        self.process.close()


def reap() -> dict[int, int]:
    """Take the ends of all children; as the first process of a container also of those that others left behind."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
