"""The files of examples/deploy, and a machine on which their commands run: as containers, pods or units, without their engines.

The machine is a host of its own (see hosts.py): the ports of the files are free there, and the names of services lead to it. So
commands run as they are written. What an engine would do beside is not done: images are not built, limits are not set.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

import hosts
from fleetbench import signal_all
from workbench import DEADLINE, until

__all__ = ["DEPLOY", "PASSWORD", "Machine", "Service", "compose", "manifest", "unit"]

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "examples" / "deploy"
PASSWORD = "open-sesame"  # noqa: S105 - of a machine that ends with the test

#: The shop as it is, with jobs that a test can follow.
SHOP = """
import subprocess, time
from fastapi_shop import api, jobs

@jobs.task
def begun() -> None: ...

@jobs.task
def slow(seconds: float) -> None:
    begun.using(run_after=3600).enqueue()  # tells that the run has begun: a claim alone goes back if the worker is stopped
    time.sleep(seconds)

@jobs.task
def leave_behind(seconds: str) -> None:
    subprocess.run(["sh", "-c", f"sleep {seconds} &"], check=True)
"""


def compose() -> dict[str, Any]:
    """Return the compose file, with the variables of its .env set."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(re.sub(r"\$\{PASSWORD[^}]*\}", PASSWORD, text)))


def manifest(kind: str, name: str) -> dict[str, Any]:
    """Return an object of the Kubernetes manifests."""
    found = [
        one for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for one in yaml.safe_load_all(path.read_text("utf-8"))
    ]
    return next(dict(one) for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name))


def unit(name: str) -> dict[str, str]:
    """Return the last value of each setting of a unit."""
    lines = (DEPLOY / "systemd" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


class Service:
    """A program of the machine; `pid` is ours for it."""

    def __init__(self, process: subprocess.Popen[bytes], deep: int, log: Path) -> None:
        self.process = process
        self.log = log
        self.pid = process.pid
        for _ in range(deep):  # nsenter and unshare stay as its parents
            until(lambda: hosts.children(self.pid) or process.poll() is not None, "the program")
            if process.poll() is not None:
                break
            self.pid = hosts.children(self.pid)[0]

    def stop(self, number: int) -> int:
        """Send a signal to it, and return its exit code."""
        os.kill(self.pid, number)
        return self.process.wait(DEADLINE)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


class Machine:
    """A host, and the programs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.host = hosts.Host(4)
        self._stack.callback(self.host.end)
        self.address = self.host.far
        self.redis = f"unix://{folder}/redis"
        self._inside = [*self.host.inside, f"--wd={folder}"]
        shutil.copy(ROOT / "examples" / "fastapi_shop.py", folder)
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(compose()['services'])}\n", encoding="utf-8")
        subprocess.run([*self.host.inside, "mount", "--bind", folder / "hosts", "/etc/hosts"], check=True, timeout=30)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "PYTHONDONT"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**clean, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **given}

    def start(self, name: str, command: Sequence[str], given: Mapping[str, str], *apart: str) -> Service:
        """Start a program; as the first of a pid namespace, if `apart` says so."""
        log = self.folder / f"{name}.log"
        out = self._stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            [*self._inside, *apart, *command], env=self.environment(given), stdout=out, stderr=out,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        made = Service(process, 2 if apart else 1, log)
        self._stack.callback(self._end, made)
        return made

    def start_redis(self) -> None:
        """Start the Redis of the compose file; on a socket, too, by which tests reach it."""
        service = compose()["services"]["redis"]
        self.start("redis", [*service["command"], "--unixsocket", str(self.folder / "redis")], {})
        until(lambda: self.run(service["healthcheck"]["test"][1:], {}).stdout == "PONG\n", "Redis")

    def run(self, command: Sequence[str], given: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program until it ends."""
        return subprocess.run(
            [*self._inside, *command], env=self.environment(given), capture_output=True, text=True,
            timeout=DEADLINE, check=False,
        )  # fmt: skip

    @staticmethod
    def _end(service: Service) -> None:
        if service.process.poll() is None:
            signal_all([service.pid], signal.SIGKILL)
            service.process.kill()
            service.process.wait(DEADLINE)

    def close(self) -> None:
        self._stack.close()
