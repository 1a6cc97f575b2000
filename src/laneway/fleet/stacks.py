"""Stacks: what every thread of a worker does, written by the worker when it gets SIGTTIN.

`faulthandler` writes it from the signal's own handler, so it works while the interpreter is held by one call. The file is in a
temporary folder of the fleet; the supervisor sees it grow and names it in the log.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal

from laneway.fleet.member import Member

__all__ = ["Stacks", "of_jobs", "stacks_file"]

log = logging.getLogger("laneway")

#: Where jobs are called from.
_RUN = os.path.join("laneway", "worker", "run.py")


def stacks_file(folder: str, pid: int) -> str:
    """Return where a process writes its stacks."""
    return os.path.join(folder, f"stacks-{pid}.txt")


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

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._sizes: dict[str, int] = {}  # at the last look
        self._told: dict[str, int] = {}  # up to where it was told
        self._wanted: set[str] = set()  # to be told in the log itself

    def ask(self, member: Member, *, tell: bool = False) -> None:
        """Ask a worker for its stacks; with `tell` those of its jobs are in the log as well."""
        if member.process is not None:
            if tell:
                self._wanted.add(stacks_file(self.folder, member.process.pid))
            member.process.kill(signal.SIGTTIN)

    def look(self) -> None:
        """Tell of stacks that were written."""
        for entry in os.scandir(self.folder):
            size = entry.stat().st_size
            before, self._sizes[entry.path] = self._sizes.get(entry.path, 0), size
            told = self._told.get(entry.path, 0)
            if size > told and size == before:  # else it is being written just now
                self._told[entry.path] = size
                self._tell(entry, told)

    def _tell(self, entry: os.DirEntry[str], since: int) -> None:
        text = ""
        if entry.path in self._wanted:
            self._wanted.remove(entry.path)
            with open(entry.path, encoding="utf-8", errors="replace") as file:
                file.seek(since)
                text = of_jobs(file.read())
        pid = entry.name.removeprefix("stacks-").removesuffix(".txt")
        log.warning("the stacks of process %s are in %s%s", pid, entry.path, f"\n{text}" if text else "")

    def close(self) -> None:
        """Remove the folder, unless somebody has asked for what is in it."""
        if not self._told:
            shutil.rmtree(self.folder, ignore_errors=True)
