"""The units of examples/deploy under a real systemd: the first process of a machine that sees no units but these."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import hosts
from deploybench import DEPLOY, ROOT, Machine
from fleetbench import signal_all
from laneway import App
from test_deploy import UNITS, need
from workbench import DEADLINE, until

SYSTEMD = Path("/lib/systemd/systemd")

#: Makes a cgroup and mounts for systemd, and becomes it. It sees none of the machine's units: they would be started here.
BOOT = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd /run/cgroups
cp -r {folder}/units /run/systemd/system
mount -t cgroup2 cgroup2 /run/cgroups
mkdir /run/cgroups/{name}
echo $$ > /run/cgroups/{name}/cgroup.procs
mount -t tmpfs tmpfs /srv
mkdir /srv/shop
mount --bind {folder}/srv /srv/shop
mount --bind {src} /srv/shop/src
mount --bind {site} /srv/shop/site
mount --bind {python} /srv/shop/python
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/group /etc/group
mount --bind {folder}/console /dev/console
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
exec unshare --cgroup sh -c '
    umount -l /run/cgroups
    umount -l /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec {systemd} --system --unit=multi-user.target --log-target=console --show-status=no'
"""
TARGETS = ("basic", "sysinit", "shutdown", "network-online", "multi-user")


class Booted:
    """A machine whose first process is systemd."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._cgroup = f"laneway-test-{os.getpid()}"
        folder = machine.folder
        for name in ("units", "srv", "srv/src", "srv/site", "srv/python", "srv/.venv/bin"):
            (folder / name).mkdir(parents=True)
        for target in TARGETS:
            (folder / "units" / f"{target}.target").write_text("[Unit]\n", encoding="utf-8")
        for name in UNITS:
            shutil.copy(DEPLOY / "systemd" / name, folder / "units")
            (folder / "units" / f"{name}.d").mkdir()  # there is no journal
            log = f"[Service]\nStandardOutput=append:{folder}/console\nStandardError=append:{folder}/console\n"
            (folder / "units" / f"{name}.d" / "log.conf").write_text(log, encoding="utf-8")
        for name in ("shop.py", "fastapi_shop.py"):
            shutil.copy(folder / name, folder / "srv")
        settings = (DEPLOY / "systemd" / "shop.env").read_text(encoding="utf-8")
        here = "PYTHONPATH=/srv/shop/src:/srv/shop/site\nLD_LIBRARY_PATH=/srv/shop/python/lib\n"
        (folder / "srv" / "shop.env").write_text(settings + here, encoding="utf-8")
        laneway = folder / "srv" / ".venv" / "bin" / "laneway"
        laneway.write_text(
            f"#!/srv/shop/python/bin/{Path(sys.executable).resolve().name}\nfrom laneway.cli import main\nmain()\n",
            encoding="utf-8",
        )
        laneway.chmod(0o755)
        for name, line in (("passwd", "shop:x:10001:10001::/srv/shop:/bin/false"), ("group", "shop:x:10001:")):
            (folder / name).write_text(f"{Path('/etc', name).read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
        (folder / "console").touch()
        os.chown(folder / "srv", 10001, 10001)  # what a job leaves there shows that it ran
        script = BOOT.format(
            folder=folder, name=self._cgroup, systemd=SYSTEMD,
            src=ROOT / "src", site=Path(pytest.__file__).parent.parent, python=sys.base_prefix,
        )  # fmt: skip
        # Its own units alone: those of this machine would be started on it.
        given = {"container": "lxc", "SYSTEMD_UNIT_PATH": "/run/systemd/system"}
        apart = ("unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
        self.init = machine.start("systemd", ["sh", "-c", textwrap.dedent(script)], given, *apart)

    def ctl(self, *words: str) -> str:
        """Ask systemd something."""
        inside = ["nsenter", "--target", str(self.init.pid), "--pid", "--mount", "--net", "--cgroup"]
        done = subprocess.run([*inside, "systemctl", *words], capture_output=True, text=True, timeout=DEADLINE, check=False)
        return done.stdout.strip()

    def main(self, unit: str) -> int:
        """Return the pid of a unit's main process, as we see it."""
        known = int(self.show(unit, "MainPID"))
        found = psutil.Process(self.init.pid).children()
        return next(one.pid for one in found if inner_pid(one.pid) == known)

    def show(self, unit: str, name: str) -> str:
        return self.ctl("show", "--value", "-p", name, unit)

    def said(self) -> str:
        return self.init.said() + (self.machine.folder / "console").read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """End it, and remove its cgroups."""
        signal_all([self.init.pid], signal.SIGKILL)
        self.init.process.wait(DEADLINE)
        remove = f"mount -t cgroup2 cgroup2 /mnt && find /mnt/{self._cgroup} -depth -type d -exec rmdir {{}} +"
        command = [need("unshare", "util-linux"), "--mount", "sh", "-c", remove]
        until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, "an empty cgroup")


def inner_pid(pid: int) -> int:
    """Return what a process calls itself."""
    lines = Path("/proc", str(pid), "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Booted]:
    hosts.need_hosts()
    need("systemctl", "systemd")
    if not SYSTEMD.exists():
        pytest.skip("no systemd here: apt-get install systemd")
    machine = Machine(tmp_path)
    try:
        machine.start_redis()
        made = Booted(machine)
        try:
            try:
                until(lambda: made.ctl("is-system-running") == "running", "systemd")
            except AssertionError:
                pytest.skip(f"systemd does not start in a namespace here: {made.said()}")
            yield made
        finally:
            made.end()
    finally:
        machine.close()


def test_systemd_runs_the_units_and_a_stop_lets_jobs_finish(booted: Booted) -> None:
    worker, dashboard = UNITS
    for name in UNITS:
        booted.ctl("start", name)
        assert booted.show(name, "ActiveState") == "active", booted.said()
    with closing(App(booted.machine.redis)) as app:
        until(lambda: len(app.inspect.workers()) == 2, "its workers")
        status = Path("/proc", str(booted.main(worker)), "status").read_text(encoding="utf-8")
        lines = [line.split()[:2] for line in status.splitlines() if line.startswith(("Uid", "CapBnd", "NoNewPrivs", "Seccomp:"))]
        assert lines == [["Uid:", "10001"], ["CapBnd:", "0" * 16], ["NoNewPrivs:", "1"], ["Seccomp:", "2"]]

        os.kill(booted.main(worker), signal.SIGKILL)
        until(lambda: booted.show(worker, "NRestarts") == "1", "its restart")
        app.enqueue("shop.slow", 1.0)
        until(lambda: app.inspect.counts()["scheduled"] == 1, "the start of the slow job")
        booted.ctl("stop", worker)
        assert (booted.show(worker, "ActiveState"), booted.show(worker, "Result")) == ("inactive", "success")
        assert app.stats.totals()["processed"] == 1

    asked = booted.machine.run(["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/')"], {})
    assert "401" in asked.stderr
    booted.ctl("stop", dashboard)
    assert booted.show(dashboard, "Result") == "success"
