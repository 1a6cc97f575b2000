"""Hosts for tests: namespaces of their own for network, processes, mounts and name, each with a cable to the Redis server.

A host is one process, its init: it has pid 1 inside, buries orphans, and everything on the host dies with it. When the tests die,
its standard input closes and it ends. The server stays outside and listens at the near end of every cable: a cable can be cut.

Pids on host number n begin at n × 10,000, so that evidence of several hosts does not mix them up. All hosts are one machine: they
share its files and CLOCK_MONOTONIC, and nothing that Laneway could use to tell who lives elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

import redisbench
from fleet_evidence import Fault, Run
from fleetbench import Fleet, Trial, family, open_trial, signal_all
from workbench import DEADLINE, until

__all__ = ["Cut", "Host", "HostFleet", "Site", "children", "need_hosts", "open_site", "why_not"]

INIT = """
import pathlib, signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are buried
socket.sethostname(sys.argv[1])
pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""
APART = ("--pid", "--mount", "--uts", "--net")


def why_not() -> str:
    """Say what is missing for hosts; empty: nothing."""
    if sys.platform != "linux":
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root can make namespaces"
    missing = [name for name in ("ip", "unshare", "nsenter", "setsid") if shutil.which(name) is None]
    return f"no {', '.join(missing)} here: apt-get install iproute2 util-linux" if missing else redisbench.why_not()


@functools.cache
def _try() -> str:
    """Make a host, and say what is wrong with it; a container may forbid it to its root."""
    try:
        Host(1).end()
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        return f"namespaces cannot be made here: {error}"
    return ""


def need_hosts() -> None:
    """Skip the test if there can be no hosts here. Under CI that is a failure, if only the kernel says no."""
    if missing := why_not():
        pytest.skip(missing)
    if wrong := _try():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(wrong)


# -- a host --------------------------------------------------------------------------------------------------------


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


class Host:
    """A machine of its own, as far as Laneway can see."""

    def __init__(self, number: int) -> None:
        self.name = f"host{number}"
        self._cable = f"lw{number}x{random.randrange(16**6):06x}"  # noqa: S311 - others may run the same tests just now
        net = f"198.18.{random.randrange(256)}.{4 * random.randrange(64)}"  # noqa: S311 - addresses that are for tests
        self.near, self.far = (net[: net.rindex(".") + 1] + str(int(net.rpartition(".")[2]) + n) for n in (1, 2))
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--net"]
        self._process = subprocess.Popen(
            [*apart, sys.executable, "-c", INIT, self.name, str(10_000 * number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == b"ready\n", "the host did not start"
            (self.init,) = children(self._process.pid)
            self._connect()
        except BaseException:
            self.end()
            raise

    def _connect(self) -> None:
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        _run("ip", "address", "add", f"{self.near}/30", "dev", self._cable)
        _run("ip", "link", "set", self._cable, "up")
        _run(*self.inside, "ip", "address", "add", f"{self.far}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*self.inside, "ip", "link", "set", device, "up")

    @property
    def inside(self) -> list[str]:
        """A command that starts another one on this host."""
        return ["nsenter", "--target", str(self.init), *APART]

    def cut(self) -> None:
        """Take the cable out."""
        _run("ip", "link", "set", self._cable, "down")

    def mend(self) -> None:
        """Put it in again."""
        _run("ip", "link", "set", self._cable, "up")

    def end(self) -> None:
        """Switch it off: all its processes die at once, and nobody says a word."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if hasattr(self, "init"):
            signal_all([self.init], signal.SIGKILL)
        self._process.kill()
        self._process.wait(10)
        with contextlib.suppress(AssertionError):  # it went with its other end
            _run("ip", "link", "delete", self._cable)


def children(parent: int) -> list[int]:
    """Return the pids of a process' children."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", name, "stat").read_text(errors="replace")
                if int(stat[stat.rindex(")") + 2 :].split()[1]) == parent:
                    found.append(int(name))
    return found


# -- its fleets ----------------------------------------------------------------------------------------------------


class HostFleet(Fleet):
    """What one `laneway worker` command started on a host. Its pids are ours; evidence has those of the host."""

    def __init__(self, trial: Trial, host: Host, url: str, log: Path, options: Collection[str], slots: int, **env: str) -> None:
        self.host = host
        inside = [*host.inside, "setsid"]
        super().__init__(trial, log, options, slots, inside=inside, environment={"FLEET_STORE": url, **env})
        until(lambda: children(self.process.pid) or not self.lives, "a process on the host")
        (self.pid,) = children(self.process.pid)
        until(lambda: family({self.pid}), "a session of its own")
        self.session = self.known_as([self.pid])[self.pid]

    def known_as(self, pids: Iterable[int]) -> dict[int, int]:
        """Return pids with what these processes call themselves."""
        found: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                lines = Path("/proc", str(pid), "status").read_text(errors="replace").splitlines()
                found[pid] = next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))
        return found

    def names(self) -> frozenset[int]:
        """Return what its living processes call themselves."""
        return frozenset(self.known_as(p.pid for p in self.members()).values())

    def end(self) -> None:
        """End it whatever it does, and who started it here: that one stops when it is stopped."""
        super().end()
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(DEADLINE)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def until_said(self, text: str, times: int = 1) -> None:
        """Wait until its log has something so many times."""
        until(lambda: self.said().count(text) >= times, f"{times} × {text!r} in the log of {self.host.name}")


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """A fleet was cut off, and came back. Meanwhile its runs went on, and others took over what they had to take for dead."""

    limit: int = 0  #: sooner than this after `since` nobody takes over, nanoseconds

    def hit(self, run: Run) -> bool:
        """Say whether a run began before the fleet was back, and could not be settled before it was cut off."""
        return run.start.at <= self.done and Fault.hit(self, run)

    def froze(self, run: Run) -> bool:
        """Say whether a run went on without the store."""
        return self.hit(run)

    def excuses(self, other: Run, run: Run) -> bool:
        """A stale run cannot be un-run: as long as its code goes on, the lane does too."""
        return self.hit(other) and run.start.at >= self.since + self.limit


class Site:
    """A server, hosts, and a trial on them."""

    def __init__(self, trial: Trial, hosts: list[Host], server: redisbench.Server, beat: float) -> None:
        self.trial = trial
        self.hosts = hosts
        self.server = server
        self.beat = beat

    def url(self, host: Host) -> str:
        """Return the server's address as a host has it."""
        return f"redis://{host.near}:{self.server.port}/0"

    def start(self, host: Host, *options: str, processes: int = 2, slots: int = 3, **env: str) -> HostFleet:
        """Start a fleet on a host."""
        trial = self.trial
        log = trial.folder / f"fleet-{len(trial.fleets) + 1}.log"
        fleet = HostFleet(
            trial, host, self.url(host), log, ["-p", str(processes), "--beat", str(self.beat), *options], slots, **env
        )
        trial.fleets.append(fleet)
        return fleet

    def vanish(self, fleet: HostFleet, *, kill: bool) -> Fault:
        """Let a fleet's host vanish: nobody hears from it any more, and its processes are killed or frozen."""
        names, since = fleet.names(), time.monotonic_ns()
        fleet.host.cut()
        if kill:
            return self.switch_off(fleet, names, since)
        while awake := [p.pid for p in fleet.members() if p.state not in "Tt"]:
            signal_all(awake, signal.SIGSTOP)
        self.trial.faults.append(Fault("freeze", "host", names, since, time.monotonic_ns(), 2**63))
        return self.trial.faults[-1]

    def switch_off(self, fleet: HostFleet, names: frozenset[int], since: int) -> Fault:
        """Switch a fleet's host off."""
        fleet.host.end()
        fleet.process.send_signal(signal.SIGCONT)  # who started it stops when it is stopped
        fleet.process.wait(DEADLINE)
        until(lambda: not fleet.members(), "the death of all on the host")
        self.trial.faults.append(Fault("kill", "host", names, since, time.monotonic_ns()))
        return self.trial.faults[-1]

    @contextlib.contextmanager
    def cut_off(self, fleet: HostFleet, back: Callable[[], object] = lambda: None) -> Generator[None]:
        """Cut a fleet off while the block runs. When it is back, do something; wait until it knows that it was taken for dead."""
        names, since = fleet.names(), time.monotonic_ns()
        before = fleet.said().count("was taken for dead")
        workers = len(fleet.of_role("worker"))
        fleet.host.cut()
        try:
            yield
        finally:
            fleet.host.mend()
        back()
        fleet.until_said("was taken for dead", before + workers)
        over = time.monotonic_ns()
        # An observer counts from the last beat that it saw, which may have been the one before.
        limit = round((self.trial.dead_after - 2 * self.beat) * 1e9)
        self.trial.faults.append(Cut("freeze", "cut-off fleet", names, since, over, over, limit))


@contextlib.contextmanager
def open_site(folder: Path, program: str, *, hosts: int = 2, dead_after: float = 2.0, beat: float = 0.2) -> Generator[Site]:
    """Build hosts, a server between them, and a trial."""
    need_hosts()
    with contextlib.ExitStack() as built:
        machines: list[Host] = []
        for number in range(1, hosts + 1):
            machines.append(Host(number))
            built.callback(machines[-1].end)
        near = [host.near for host in machines]
        server = redisbench.Server("--bind", " ".join(["127.0.0.1", *near]), "--protected-mode", "no", "--appendonly", "yes")
        built.callback(server.remove)
        trial = built.enter_context(open_trial(folder, dead_after, program, server.url))
        yield Site(trial, machines, server, beat)
