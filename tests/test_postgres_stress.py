"""The rules of the PostgreSQL store: under random stress, and each in a race that is made wide; and without each rule.

STRESS_SEEDS=1,2,3 chooses other chances than the usual ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postgresbench
from conftest import SOAK, often
from fleetbench import tell

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

import laneway.store.postgres.store
from laneway.core.outcome import Dead, ErrorInfo
from laneway.store.contract import ClaimRequest
from laneway.store.postgres import PostgresInspect
from laneway.store.postgres.schema import script
from postgres_evidence import Verdict, judge
from postgres_mutants import MUTANTS, NO_LANE_LOCKS, Mutant
from postgres_races import RACES
from postgres_scene import HOUR, Beside, Scene, done, is_open, job, payload, take, until_two_wait
from settling import settled_alike

SECONDS = often(4, 60)
SEEDS = [int(seed) for seed in os.environ.get("STRESS_SEEDS", "1,2,3,4,5,6,7,8,9,10" if SOAK else "1").split(",")]
PROGRAM = str(Path(__file__).with_name("postgres_stress_program.py"))


@pytest.fixture(scope="module")
def server() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or fail
    own = postgresbench.Server("deadlock_timeout=100ms")
    own.ask("CREATE DATABASE made")
    with psycopg.connect(_url(own, "made")) as connection:
        connection.execute(script("laneway").encode())
    yield own
    own.remove()


def _url(server: postgresbench.Server, database: str) -> str:
    return server.url.rpartition("/")[0] + f"/{database}"


@pytest.fixture
def url(server: postgresbench.Server) -> str:
    """A database of its own, with the tables and functions."""
    server.ask("DROP DATABASE IF EXISTS stress WITH (FORCE)")
    server.ask("CREATE DATABASE stress TEMPLATE made")
    return _url(server, "stress")


@pytest.fixture
def scene(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(laneway.store.postgres.store, "AGAIN", frozenset())  # a deadlock is told, not tried again
    made = Scene(url)
    yield made
    made.close()


# -- random ------------------------------------------------------------------------------------------------------


def stress(url: str, folder: Path, seed: int, seconds: float, workers: int = 4, producers: int = 3) -> Verdict:
    command = [sys.executable, PROGRAM, url, str(folder), str(seconds), str(seed), str(workers), str(producers)]
    program = subprocess.Popen(command, start_new_session=True)
    try:
        code = program.wait(3 * seconds + 100)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, 9)
    verdict = judge(folder)
    tell(f"seed {seed}: {verdict}")
    assert code == 0
    return verdict


@pytest.mark.soak
@pytest.mark.timeout(4 * SECONDS + 200)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_overlaps_overtakes_or_gets_lost(url: str, tmp_path: Path, seed: int) -> None:
    verdict = stress(url, tmp_path, seed, SECONDS)
    assert not verdict.mistakes, str(verdict)
    for what in ("pushed", "undone", "collected", "runs", "killed", "terminated", "fault", "looks", "places compared"):
        assert verdict.figures[what], f"this showed nothing: no {what}"


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="only with make soak")
def test_without_lane_locks_much_goes_wrong(scene: Scene, url: str, tmp_path: Path) -> None:
    scene.make(NO_LANE_LOCKS.of(script("laneway")))
    assert stress(url, tmp_path, 1, 10).mistakes


# -- the judge ---------------------------------------------------------------------------------------------------

Note = tuple[object, ...]
#: Two jobs of a lane, one after the other: pushed at 1 to 2 and at 3 to 4, run at 5 to 6 and at 7 to 8.
PUSHES: list[Note] = [("pushed", "a", "q", "L", 1, 2, False, False), ("pushed", "b", "q", "L", 3, 4, False, False)]
RUNS: list[Note] = [
    ("start", 5, "a", "q", "L", 1, []), ("end", 6, "a", 1), ("start", 7, "b", "q", "L", 2, []), ("end", 8, "b", 2),
]  # fmt: skip
LEFT: list[Note] = [("left", 0, [], 0), ("deadlocks", 0), ("looked", [], [])]


@pytest.mark.parametrize(
    ("kind", "pushes", "runs", "director"),
    [
        ("", PUSHES, RUNS, LEFT),
        ("lost", PUSHES, RUNS[:2], LEFT),
        ("overlap", PUSHES, [*RUNS[:1], ("end", 9, "a", 1), *RUNS[2:]], LEFT),
        ("overlap", PUSHES, [RUNS[0], *RUNS[2:]], [*LEFT, ("killed", "w", 9)]),
        ("overtaking", PUSHES, [("start", 1, "b", "q", "L", 3, []), ("end", 2, "b", 3), *RUNS[:2]], LEFT),
        ("ghost", [*PUSHES, ("undone", "a")], RUNS, LEFT),
        ("lost payload", [*PUSHES, ("collected", '"x"')], RUNS, LEFT),
        ("stranded", PUSHES, RUNS, [("left", 1, [], 0)]),
        ("payloads without a lane", PUSHES, RUNS, [("left", 0, [], 1)]),
        ("deadlocks", PUSHES, RUNS, [*LEFT, ("deadlocks", 1)]),
        ("miscounted", PUSHES, RUNS, [*LEFT, ("looked", [[["q", 1], 1, 0]], [])]),
        ("two holders", PUSHES, RUNS, [*LEFT, ("looked", [], [["q", "L"]])]),
    ],
)  # fmt: skip
def test_the_judge_finds_every_mistake(
    kind: str, pushes: list[Note], runs: list[Note], director: list[Note], tmp_path: Path
) -> None:
    for name, notes in (("producer-p", pushes), ("worker-w", runs), ("director", director)):
        (tmp_path / name).write_text(lines(notes))
    assert list(judge(tmp_path).mistakes) == ([kind] if kind else [])


def lines(notes: list[Note]) -> str:
    return "".join(json.dumps(note) + "\n" for note in notes)


# -- made wide ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_race_ends_well(scene: Scene, race: Callable[[Scene], str]) -> None:
    assert race(scene) == ""


def test_an_open_push_keeps_nobody_else_from_pushing(scene: Scene) -> None:
    """The first payload of a collector waits only for pushes into its own queue; and so does who pushes after it."""
    scene.push(job("0", None))
    late = scene.store()
    with is_open(late):
        late.push([job("1", None)])
        for push in (payload("A", "1"), job("2", None), payload("B", "2")):
            beside = Beside(scene, lambda push=push: scene.push(push)).start()  # type: ignore[misc]
            assert not beside.waits
            assert beside.error is None


@pytest.mark.parametrize("verb", ["give_back", "recover"])
def test_what_became_due_and_was_claimed_while_a_give_back_waited_is_counted_as_it_stands(scene: Scene, verb: str) -> None:
    """It waits for an exchange of its worker, which waits for a lane; its own time is that of its begin."""
    scene.push(job("1"), job("later", None, delay=HOUR))
    store = scene.store()
    settled = done(take(store, "a"))
    with scene.session() as gate:
        gate.execute("select pg_advisory_xact_lock(laneway.lane_key('q', 'L'))")
        exchange = Beside(scene, lambda: store.exchange("a", settled, [ClaimRequest("q", 9)], 9)).start()
        back = Beside(scene, lambda: getattr(scene.store(), verb)("a", *["lost"] * (verb == "recover"))).start()
        until_two_wait(scene)
        scene.ask("update laneway.job set due = laneway.now_us() where id = 'later'")

    assert [claim.unit.id for claim in exchange.join().claims] == ["later"]
    assert back.join() == ["later"]
    assert {state: number for state, number in PostgresInspect(store).counts().items() if number} == {"ready": 1}
    assert [claim.unit.id for claim in take(store, "b")] == ["later"]
    assert {state: number for state, number in PostgresInspect(store).counts().items() if number} == {"running": 1}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule.replace(" ", "_"))
def test_without_its_rule_a_race_ends_badly(scene: Scene, mutant: Mutant) -> None:
    scene.make(mutant.of(script("laneway")))
    found = mutant.race(scene)
    tell(f"without the rule that {mutant.rule}: {found}")
    assert found


def test_a_replay_and_a_death_that_wait_for_each_other_are_both_done(url: str) -> None:
    """A payload is dead, and an equal one runs. A replay locks the dead one first, a death the lane: one of them is repeated."""
    scene = Scene(url)
    for _ in range(2):
        scene.push(payload("A", "x"))
        claims = scene.claim("a", queue="c")
        die = [settled_alike(claim, Dead(ErrorInfo("E", ""))) for claim in claims]
        if not (dead := scene.ask("select id from laneway.job where score is not null")):
            scene.store().exchange("a", die, [], 0)
    with scene.session() as gate:
        gate.execute("select 1 from laneway.job where side is not null for update")
        death = Beside(scene, lambda: scene.store().exchange("a", die, [], 0)).start()
        replay = Beside(scene, lambda: PostgresInspect(scene.store()).retry(dead[0][0])).start()
        until_two_wait(scene)
    assert death.join().refused == []
    assert replay.join() is True
    scene.close()


def test_every_race_notices_a_mutant() -> None:
    assert {mutant.race for mutant in MUTANTS} == set(RACES)
