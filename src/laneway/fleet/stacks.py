"""Stacks: what every thread of a worker does, written by the worker when it gets SIGTTIN.

It goes into memory that the supervisor shares, which sees it grow, puts it into a temporary file, and names that in the log.

On SIGTTIN a worker writes when it has the interpreter, so that all other threads stand still. If one call holds that and does not
let go, the supervisor insists with SIGTTOU: then it is written from the signal's own handler, whoever has the interpreter. Among
threads that run, that could crash the process; but a thread that lets none of them run is the case it is for.
"""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import time

from laneway.fleet.member import Member
from laneway.logs import log

__all__ = ["Stacks", "of_jobs"]

#: How long a worker has for its answer before the supervisor insists, seconds.
PATIENCE = 0.1
#: Where jobs are called from.
_RUN = os.path.join("laneway", "worker", "run.py")


def of_jobs(stacks: str) -> str:
    """Return what jobs do, out of all stacks: the threads that run one, down to where our own code begins."""
    found: list[str] = []
    for thread in stacks.split("\n\n"):
        _, *frames = thread.splitlines() or [""]
        theirs = list(itertools.takewhile(lambda frame: _RUN not in frame, frames))
        if len(theirs) < len(frames):
            found += ["  a job, most recent call first:", *theirs]
    return "\n".join(found)


class Stacks:
    """Asks for stacks, and tells where they are."""

    def __init__(self) -> None:
        self._wanted: set[str] = set()  # whose jobs' stacks are to be in the log itself
        self._asked: dict[str, float] = {}  # who has not answered, and when it was asked

    def ask(self, member: Member, *, tell: bool = False) -> None:
        """Ask a worker for its stacks; with `tell` those of its jobs are in the log as well."""
        if member.process is not None:
            if tell:
                self._wanted.add(member.id)
            self._asked[member.id] = time.monotonic()
            member.process.kill(signal.SIGTTIN)

    def look(self, member: Member, *, last: bool = False) -> None:
        """Tell of stacks that were written; at the `last` look also of what may not be whole."""
        file = member.stacks
        size = os.fstat(file.fd).st_size
        before, file.seen = file.seen, size
        if size > file.told and (size == before or last):  # else it is being written just now
            text = os.pread(file.fd, size - file.told, file.told)
            file.told = size
            self._tell(member, text)
        if size > before or last:
            self._asked.pop(member.id, None)
        elif member.id in self._asked and time.monotonic() > self._asked[member.id] + PATIENCE:
            del self._asked[member.id]
            if member.process is not None:
                member.process.kill(signal.SIGTTOU)

    def _tell(self, member: Member, text: bytes) -> None:
        pid = member.process.pid if member.process else 0
        with tempfile.NamedTemporaryFile("wb", prefix=f"laneway-stacks-{pid}-", suffix=".txt", delete=False) as file:
            file.write(text)
        jobs = ""
        if member.id in self._wanted:
            self._wanted.remove(member.id)
            jobs = of_jobs(text.decode(errors="replace"))
        log.warning(
            "the stacks of worker %d (pid %d) are in %s", member.number, pid, file.name, extra={"laneway_stacks": jobs}
        )  # fmt: skip
