"""What Laneway asks the kernel: memory and titles, with the packages that may be missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laneway import kernel


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    """A process that has ended and was reaped."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_memory_of_a_process_is_what_psutil_says(child: subprocess.Popen[bytes]) -> None:
    psutil = pytest.importorskip("psutil")
    rss, pss = kernel.memory(os.getpid())
    expected = psutil.Process().memory_full_info()
    assert rss == pytest.approx(expected.rss, rel=0.1)
    assert pss == pytest.approx(expected.pss, rel=0.2)
    assert kernel.memory(child.pid) == (0, 0)


def test_an_old_kernel_knows_the_resident_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("9000 4000 100 1 0 500 0\n")
    monkeypatch.setattr(kernel, "_PROC", str(tmp_path))
    assert kernel.memory(7) == (4000 * os.sysconf("SC_PAGE_SIZE"), 4000 * os.sysconf("SC_PAGE_SIZE"))


def test_without_proc_memory_is_what_psutil_says_or_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(kernel, "_PROC", str(tmp_path / "none"))
    assert kernel.memory(os.getpid())[0] == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert kernel.memory(child.pid) == (0, 0)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert kernel.memory(os.getpid()) == (0, 0)


def test_without_setproctitle_a_process_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    before = Path("/proc/self/cmdline").read_bytes()
    kernel.set_title("worker 1 of 1")
    assert Path("/proc/self/cmdline").read_bytes() == before
