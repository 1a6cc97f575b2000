"""The fleet's system calls: dying with the parent, handles on processes, titles."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = [
    "Process",
    "cause_of_death",
    "die_with",
    "kill_group",
    "memory",
    "open_pidfd",
    "set_title",
    "show_command",
    "was_forked",
]

_PR_SET_PDEATHSIG = 1
_PF_FORKNOEXEC = 0x40
_PROC = "/proc"


def die_with(parent: int) -> None:
    """End this process when the parent ends. A process inside a call into C would never see a pipe close.

    Only Linux has this; elsewhere a worker ends when its socket closes.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only used here

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended before
        os._exit(1)


def open_pidfd(pid: int) -> list[int]:
    """Return a pidfd of a process, which never comes to mean another one; empty if the kernel has no pidfds."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


class Process:
    """A process that can be killed and whose end can be seen, by its pidfd where there is one."""

    def __init__(self, pid: int, handles: Sequence[int]) -> None:
        self.pid = pid
        self.handle = handles[0] if handles else None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            if self.handle is not None:
                signal.pidfd_send_signal(self.handle, number)
            else:
                os.kill(self.pid, number)

    def is_gone(self) -> bool:
        """Return whether its code has ended; it may still be a zombie."""
        if self.handle is not None:
            poll = select.poll()
            poll.register(self.handle, select.POLLIN)
            return bool(poll.poll(0))
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def close(self) -> None:
        """Close the handle."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def memory(pid: int) -> tuple[int, int]:
    """Return the memory of a process in bytes: resident, and proportional (memory shared with others counts in part).

    Where there is no /proc it is unknown, 0, unless psutil is installed.
    """
    if not os.path.exists(_PROC):
        return _memory_by_psutil(pid)
    try:
        with open(f"{_PROC}/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
            sizes = {words[0]: int(words[1]) * 1024 for words in map(str.split, file) if words[0] in ("Rss:", "Pss:")}
        return sizes["Rss:"], sizes["Pss:"]
    except (OSError, KeyError):  # the process has ended, belongs to another user, or the kernel is older than 4.14
        return _resident(pid)


def _resident(pid: int) -> tuple[int, int]:
    try:
        with open(f"{_PROC}/{pid}/statm", encoding="ascii") as file:
            rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0, 0
    return rss, rss


def _memory_by_psutil(pid: int) -> tuple[int, int]:
    try:
        import psutil  # noqa: PLC0415 - where it is installed
    except ModuleNotFoundError:
        return 0, 0
    try:
        used = psutil.Process(pid).memory_full_info()
    except psutil.Error:
        return 0, 0
    return used.rss, getattr(used, "pss", used.rss)


def was_forked() -> bool:
    """Return whether this process was forked and runs without an exec, as far as the kernel shows: only Linux does."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()  # the name before may have any characters
        return bool(int(fields[6]) & _PF_FORKNOEXEC)
    except (OSError, ValueError, IndexError):
        return False


def kill_group(pid: int) -> None:
    """End a process and all that it has started: its group, if it has one of its own."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)


def set_title(text: str) -> None:
    """Set the name of this process in `ps`."""
    show_command(f"laneway: {text}")


def show_command(text: str) -> None:
    """Let `ps` show this as the command of this process; where setproctitle is missing, what it was started with stays."""
    with suppress(ModuleNotFoundError):
        from setproctitle import setproctitle  # noqa: PLC0415 - few processes need it

        setproctitle(text)


def cause_of_death(code: int) -> str:
    """Describe how a process ended: an exit code, or minus a signal's number.

    >>> cause_of_death(1), cause_of_death(-11)
    ('exit code 1', 'signal SIGSEGV')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
