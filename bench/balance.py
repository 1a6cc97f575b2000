"""Slots, processes and balance under a load of three kinds: jobs that do nothing, that compute, and that wait. Sidekiq beside it.

make bench ARGS="slots mixed cores footprint"        on SQLite
make bench ARGS="redis_slots redis_mixed"            on Redis, with Sidekiq where it is installed

With FIGURES=docs/charts/figures.json what was measured is written there too, for `bench/charts.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from harness import Table
from laneway import App
from load import COMPUTES, WAITS, Fleet, Load, Ran, Sidekiqs, Spinners, calibrated, calm, emptied, noise
from raw_redis import Server, served
from sidekiq_peer import FOLDER, sidekiq_missing

#: Of each kind in the mixed load.
EACH = 600
SLOTS = 25
ROUNDS = 3
ADAPTIVE = ("--balance", "adaptive")
#: What is known of the jobs, and how slots are dealt. The first is as if nobody could tell what computes.
BALANCES: dict[str, tuple[Load, tuple[str, ...]]] = {
    "even, blind": (Load(EACH, EACH, EACH, kinds={"cpu": "io", "io": "io"}), ()),
    "even": (Load(EACH, EACH, EACH), ()),
    "adaptive, by name": (Load(EACH, EACH, EACH, io_queue="calls-io"), ADAPTIVE),
    "adaptive, learned": (Load(EACH, EACH, EACH), ADAPTIVE),
    "adaptive, declared": (Load(EACH, EACH, EACH, kinds={"cpu": "cpu", "io": "io"}), ADAPTIVE),
}
#: Slots of each process, processes; and how many jobs that wait are enough to see it.
SHAPES = {"1 slot": (1, 1, 8), "25 slots": (25, 1, 150), "100 slots": (100, 1, 600), "2 × 25 slots": (25, 2, 300)}

Side = Callable[[Load], Ran]
IN_RUBY = partial(calibrated, ruby=True)


def slots(where: Path) -> None:
    """Each kind alone, by slots and processes, on SQLite."""
    _slots("slots", where, None)


def redis_slots(where: Path) -> None:
    """Each kind alone, by slots and processes, on Redis, and Sidekiq."""
    with served(where / "server") as server:
        _slots("redis_slots", where, server)


def _slots(name: str, where: Path, server: Server | None) -> None:
    sides: dict[str, Callable[[int, int], Side]] = {
        "Laneway": lambda slots, processes: (
            Fleet(where / "fleet", calibrated, "-s", str(slots), server=server, processes=processes).work
        )
    }
    if server is not None and not sidekiq_missing():
        sides["Sidekiq"] = lambda slots, processes: Sidekiqs(where / "ruby", server, IN_RUBY, slots, processes).work
    figures: dict[str, Any] = {}
    for kind in ("noop", "cpu", "io"):
        table = Table(f"{kind}, jobs per second{' on Redis' if server else ''}", "", *sides)
        for shape, (slots, processes, waiting) in SHAPES.items():
            load = Load(noop=10_000) if kind == "noop" else Load(cpu=160) if kind == "cpu" else Load(io=waiting)
            number = load.noop + load.cpu + load.io
            ran = _take_turns({side: _of(make(slots, processes), load) for side, make in sides.items()})
            rates = {side: number / each.seconds for side, each in ran.items()}
            table.row(shape, *rates.values())
            figures.setdefault(kind, {})[shape] = rates
    _say_and_save(name, figures)


def mixed(where: Path) -> None:
    """All three kinds at once, on SQLite: by balance, in one process and in two."""
    _mixed("mixed", where, None)


def redis_mixed(where: Path) -> None:
    """All three kinds at once, on Redis, and Sidekiq with its three queues of equal weight."""
    with served(where / "server") as server:
        _mixed("redis_mixed", where, server)


def _mixed(name: str, where: Path, server: Server | None) -> None:
    ideal = EACH * WAITS / SLOTS
    figures: dict[str, Any] = {}
    print(
        f"\n{EACH} jobs that do nothing, {EACH} that compute {COMPUTES * 1000:.0f} ms, {EACH} that wait {WAITS} s; {SLOTS} slots"
    )
    for processes in (1, 2):
        title = f"{processes} process{'es' * (processes > 1)}{', Redis' if server else ', SQLite'}: seconds until done"
        table = Table(f"{title} (jobs that wait: {ideal / processes:.1f} at best)", "", "all", "no-op", "cpu", "io", "CPU s")
        sides: dict[str, Callable[[], Ran]] = {}
        for balance, (load, options) in BALANCES.items():
            sides[balance] = _of(Fleet(where / "fleet", calibrated, *options, server=server, processes=processes).work, load)
        if server is not None and not sidekiq_missing():
            sides["Sidekiq"] = _of(
                Sidekiqs(where / "ruby", server, IN_RUBY, SLOTS, processes).work, BALANCES["even"][0]
            )  # fmt: skip
        ran = _take_turns(sides)
        for side, each in ran.items():
            table.row(side, each.seconds, *(each.ends[kind] for kind in ("noop", "cpu", "io")), each.cpu)
        even, learned, by_name = [ran[side].seconds for side in ("even", "adaptive, learned", "adaptive, by name")]
        print(f"    learned: {learned / by_name:.2f} of the time by name; by name: {by_name / even:.2f} of the time of even")
        figures[str(processes)] = {side: {"seconds": each.seconds, **each.ends} for side, each in ran.items()}
    _say_and_save(name, figures)


def cores(where: Path) -> None:
    """What a second process gains for jobs that compute, beside what it gains for bare processes."""
    load, number = Load(cpu=800), calibrated()

    def rounds() -> int:  # the same for all: they are compared
        return number

    ran = _take_turns(
        {
            "bare": _of(Spinners(where / "bare", rounds).work, load),
            "Laneway": _of(Fleet(where / "fleet", rounds).work, load),
            "bare, two": _of(Spinners(where / "bare", rounds, 2).work, load),
            "Laneway, two": _of(Fleet(where / "fleet", rounds, processes=2).work, load),
        },
        3,
    )
    table = Table(f"{load.cpu} jobs that compute {COMPUTES * 1000:.0f} ms", "", "one process, s", "two, s", "gain", "of bare")
    gains = {side: ran[side].seconds / ran[f"{side}, two"].seconds for side in ("bare", "Laneway")}
    for side, gain in gains.items():
        table.row(side, ran[side].seconds, ran[f"{side}, two"].seconds, gain, gain / gains["bare"])
    _say_and_save("cores", gains)


def footprint(where: Path) -> None:
    """Memory of a fleet, by slots and processes, when every slot has run jobs; and of Sidekiq."""
    calm()
    table = Table("memory after as many jobs as fill all slots, MiB of PSS", "", "workers", "with zygote", "the fleet")
    figures: dict[str, Any] = {}
    for shape, (slots, processes, _) in SHAPES.items():
        figures[shape] = {"Laneway": (sizes := _of_fleet(where, slots, processes))[-1]}
        table.row(shape, *sizes)
    if not sidekiq_missing():
        with served(where / "server") as server:
            for shape, (slots, processes, _) in SHAPES.items():
                figures[shape]["Sidekiq"] = size = _of_sidekiq(where, server, slots, processes)
                table.row(f"Sidekiq, {shape}", size)
    _say_and_save("footprint", figures)


def _of_fleet(where: Path, slots: int, processes: int) -> list[float]:
    """Return the PSS of the workers, of these and their zygote, and of all."""
    folder, load = emptied(where / "fleet"), Load(io=2 * slots * processes)
    url = f"sqlite:///{folder / 'jobs.db'}"
    (folder / "app.py").write_text(load.program(url))
    (folder / "gate").touch()
    load.enqueue(url, 0)
    app = App(url)
    command = [sys.executable, "-m", "laneway", "worker", "-s", str(slots), "-p", str(processes)]
    with (folder / "log").open("w") as log, ExitStack() as ending:
        fleet = ending.enter_context(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        ending.callback(fleet.terminate)
        while sum(app.inspect.counts().values()):
            time.sleep(0.05)
        time.sleep(1.0)
        everyone = psutil.Process(fleet.pid).children(recursive=True)
        workers = [process for process in everyone if "worker" in process.cmdline()[0]]
        assert len(workers) == processes
        sizes = [_pss(workers), _pss(everyone), _pss([psutil.Process(fleet.pid), *everyone])]
    app.close()
    return sizes


def _of_sidekiq(where: Path, server: Server, slots: int, processes: int) -> float:
    folder = emptied(where / "ruby")
    server.client.flushdb()
    (folder / "gate").touch()
    environment = {**os.environ, "REDIS_URL": server.url, "SIDEKIQ_QUIET": "1"}
    push = ["ruby", str(FOLDER / "load_push.rb"), "0", "0", str(2 * slots * processes), "0", str(WAITS)]
    subprocess.run(push, cwd=folder, env=environment, check=True, stderr=subprocess.DEVNULL)
    command = ["sidekiq", "-r", str(FOLDER / "load.rb"), "-c", str(slots), "-q", "io"]
    with (folder / "log").open("w") as log, ExitStack() as ending:
        running = [
            ending.enter_context(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
            for _ in range(processes)
        ]
        for process in running:
            ending.callback(process.terminate)
        while server.client.llen("queue:io") or len(list(folder.glob("ready-*"))) < processes:
            time.sleep(0.05)
        time.sleep(1.0 + WAITS)
        return _pss([psutil.Process(process.pid) for process in running])


def _pss(processes: list[psutil.Process]) -> float:
    return float(sum(process.memory_full_info().pss for process in processes)) / 2**20


def _of(work: Side, load: Load) -> Callable[[], Ran]:
    return lambda: work(load)


def _take_turns(sides: Mapping[str, Callable[[], Ran]], rounds: int = ROUNDS) -> dict[str, Ran]:
    """Let the sides take turns; of each, return the round that took the median time."""
    ran: dict[str, list[Ran]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, work in sides.items():
            ran[side].append(work())
    return {side: sorted(each, key=lambda one: one.seconds)[len(each) // 2] for side, each in ran.items()}


def _say_and_save(part: str, figures: Mapping[str, Any]) -> None:
    print(f"    {noise()}")
    if path := os.environ.get("FIGURES"):
        known: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            known = json.loads(Path(path).read_text())
        Path(path).write_text(json.dumps({**known, part: figures}, indent=1, ensure_ascii=False) + "\n")


PARTS = {part.__name__: part for part in (slots, mixed, cores, footprint)}
ON_REDIS = {part.__name__: part for part in (redis_slots, redis_mixed)}
