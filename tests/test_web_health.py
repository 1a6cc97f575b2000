"""Health in each state, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from laneway import App
from laneway.core.job import STATES
from laneway.present.snapshot import Snapshot
from laneway.store.contract import WorkerInfo
from laneway.store.inspection import QueueInfo, RunningJob, WorkerStatus
from laneway.web.health import Pulse
from webdesk import Shop, visiting

EVERY_STORE = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queue(name: str = "mail", *, ready: int = 0, paused: bool = False) -> QueueInfo:
    return QueueInfo(name, paused, {**dict.fromkeys(STATES, 0), "ready": ready})


def worker(
    name: str = "w", *, busy: int = 0, phase: str = "working", queues: tuple[str, ...] = (), beat_age: float = 1.0
) -> WorkerStatus:
    jobs = [RunningJob(f"j{n}", "t", "mail", None, n, None) for n in range(busy)]
    return WorkerStatus(
        id=name, host="h", pid=1, fleet="", version="", queues=queues, tasks=(), slots=2, phase=phase,
        started_at=datetime.now(UTC), uptime=1.0, last_beat=datetime.now(UTC), beat_age=beat_age, rss=0, pss=0, jobs=jobs,
    )  # fmt: skip


def seen(*queues: QueueInfo, workers: list[WorkerStatus] | None = None, lag: float = 0.0, done: int = 0) -> Snapshot:
    late = [structs.replace(one, lag=lag) for one in queues]
    return Snapshot("sqlite://", {}, late, {"processed": done}, workers or [])


def test_nothing_due_is_well_without_any_worker() -> None:
    assert Pulse(300, 60).judge(seen(queue())).status == "ok"


def test_work_that_nobody_serves_is_told_as_soon_as_it_has_waited() -> None:
    pulse = Pulse(300, 60)
    assert pulse.judge(seen(queue(ready=3), lag=59)).status == "ok"
    found = pulse.judge(seen(queue(ready=3), lag=61))
    assert (found.status, found.reasons) == ("failing", ["queue mail has 3 due, for 61 s, and no worker runs: start one"])
    others = pulse.judge(seen(queue(ready=3), lag=61, workers=[worker(queues=("default",))]))
    assert others.reasons == ["queue mail has 3 due, for 61 s, and none of 1 workers serves it: start one"]


@pytest.mark.parametrize("away", [worker(phase="quiet"), worker(phase="stopping"), worker(beat_age=99.0)])
def test_a_worker_that_claims_nothing_more_or_is_silent_does_not_count(away: WorkerStatus) -> None:
    assert Pulse(300, 60).judge(seen(queue(ready=3), lag=61, workers=[away])).status == "failing"


def test_claims_that_stand_still_are_told_and_that_they_go_on() -> None:
    clock = Clock()
    pulse = Pulse(300, 60, clock)
    still = seen(queue(ready=3), lag=1, workers=[worker()])
    assert pulse.judge(still).status == "ok"
    clock.now += 61
    found = pulse.judge(still)
    assert (found.status, "no claims" in found.reasons[0], "61 s" in found.reasons[0]) == ("failing", True, True)
    assert pulse.judge(seen(queue(ready=2), lag=1, workers=[worker()], done=1)).status == "ok"
    clock.now += 61
    assert pulse.judge(seen(queue(ready=2), lag=1, workers=[worker(busy=1)], done=1)).status == "ok"
    assert pulse.judge(seen(queue(), workers=[worker(busy=1)], done=1)).status == "ok"


def test_slots_that_are_all_busy_do_not_stand_still() -> None:
    clock = Clock()
    pulse = Pulse(300, 60, clock)
    full = seen(queue(ready=3), lag=100, workers=[worker(busy=2)])
    pulse.judge(full)
    clock.now += 120
    assert pulse.judge(full).status == "ok"


def test_a_lag_beyond_the_limit_is_told_but_not_of_a_paused_queue() -> None:
    late = Pulse(300, 60).judge(seen(queue(ready=1), lag=301, workers=[worker(busy=2)]))
    assert (late.status, late.reasons, late.lag) == (
        "failing",
        ["lag: a due job of queue mail has waited 301 s, more than 300 s"],
        301,
    )
    paused = Pulse(300, 60).judge(seen(queue(ready=1, paused=True), lag=301))
    assert (paused.status, paused.lag, paused.due) == ("ok", 0, 0)


# -- over a store ------------------------------------------------------------------------------------------------


def test_health_over_http(app: App) -> None:
    shop = Shop(app)
    with visiting(app, health_lag=1000, health_stall=1000) as client:
        assert client.get("/healthz") == {"status": "ok", "reasons": [], "lag": 0, "due": 0, "workers": 0}
        shop.login.enqueue("ada", "x")
        assert client.get("/healthz")["due"] == 1
    with visiting(app, health_lag=1e-6, health_stall=1e-6) as client:
        found = client.get("/healthz", 503)
        assert ["no worker runs" in found["reasons"][0], "lag: " in found["reasons"][1]] == [True, True]
        app.inspect.pause("mail")
        assert client.get("/healthz")["status"] == "ok"


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("this is no database, whatever its name says" * 100)
    with visiting(App(f"sqlite:///{tmp_path / 'jobs.db'}")) as client:
        assert "the store cannot be used" in client.get("/healthz", 503)["reasons"][0]
        assert client.get("/api/v1/counts", 503)["error"]["kind"].startswith("store_")


def test_lag_is_that_of_the_oldest_due_job(app: App) -> None:
    shop = Shop(app)
    shop.login.using(run_after=3600).enqueue("bob", "x")
    assert Snapshot.of(app).lag == 0.0
    shop.login.enqueue("ada", "x")
    assert 0 < Snapshot.of(app).lag < 20


def test_health_hears_of_a_worker_that_beats(app: App) -> None:
    Shop(app).login.enqueue("ada", "x")
    app.store.beat([WorkerInfo("w-9", host="elsewhere", pid=3, slots=2)])
    with visiting(app, health_stall=1e-6) as client:
        client.get("/healthz")  # one look is not enough to know that nothing moves
        assert "no claims" in client.get("/healthz", 503)["reasons"][0]
