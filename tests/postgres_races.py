"""Narrow races of the PostgreSQL store, made wide: a session stands still in the middle of a step while another one goes by.

Each race returns what came out wrong; an empty text: nothing. `postgres_mutants` takes out the rules that these are about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from laneway.core.job import Job
from laneway.errors import StoreError, StoreMoved
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest
from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.postgres.connection import PostgresError, Statement
from laneway.store.postgres.push import PostgresPush
from laneway.store.postgres.statements import VERSION, statements
from laneway.store.transfer import Move, write_move
from postgres_scene import (
    FOLD,
    HOUR,
    Beside,
    Scene,
    done,
    fold,
    insert_lanes,
    is_open,
    job,
    payload,
    take,
    until_two_wait,
    waits_for_its_retry,
)  # fmt: skip

__all__ = ["RACES"]


def two_claim_one_lane(scene: Scene) -> str:
    """A claim of a lane's job is not committed yet when one before it is, and another worker comes by."""
    scene.push(job("0", None, delay=HOUR))  # so that the queue is known
    first, late = scene.store(), scene.store()
    with is_open(first):
        with is_open(late):
            late.push([job("1")])
            scene.push(job("2"))
            one = take(first, "a")
        other = Beside(scene, lambda: scene.claim("b")).start()
    two = other.join() or []
    return f"both claimed: {[c.unit.id for c in (*one, *two)]}" if one and two else other.deadlock


def parked_behind_one_that_leaves(scene: Scene) -> str:
    """Holders of lanes are settled, not committed yet; the next job of one comes, and a walk meets it."""
    scene.push(job("0", "K"))
    scene.push(job("1"))
    first = scene.store()
    claims = take(first, "a", most=2)
    with is_open(first):
        first.exchange("a", done(claims), [], 0)
        scene.push(job("2"))
        walk = Beside(scene, lambda: scene.claim("b")).start()
    walk.join()
    return scene.stranded()


def cancelled_beside_a_park(scene: Scene) -> str:
    """The holder, which waits for its retry, is cancelled while a walk parks a job behind it."""
    waits_for_its_retry(scene)
    scene.push(job("2"))
    walk = scene.store()
    with is_open(walk):
        take(walk, "b")
        cancel = Beside(scene, lambda: PostgresInspect(scene.store()).cancel("1")).start()
    cancel.join()
    return scene.stranded()


def cancelled_beside_a_claim(scene: Scene) -> str:
    """A job is claimed, not committed yet, when somebody cancels it: it runs by then, and is only marked."""
    scene.push(job("1", None))
    claim = scene.store()
    with is_open(claim):
        take(claim, "a")
        cancel = Beside(scene, lambda: PostgresInspect(scene.store()).cancel("1")).start()
    cancel.join()
    rows = scene.ask("select state, mark from laneway.job")
    return scene.miscounted() or ("" if rows == [(4, "cancel")] else f"a running job is {rows}")


def recovered_beside_a_park(scene: Scene) -> str:
    """The holder's worker is dead, and a user cancelled the job: it leaves while a walk parks a job behind it."""
    scene.push(job("1"))
    scene.claim("a")
    PostgresInspect(scene.store()).cancel("1")
    scene.push(job("2"))
    walk = scene.store()
    with is_open(walk):
        take(walk, "b")
        recover = Beside(scene, lambda: scene.store().recover("a", "killed")).start()
    recover.join()
    return scene.stranded()


def parked_by_a_later_clock(scene: Scene) -> str:
    """The holder is cancelled; while that waits for the lane, a job comes and is parked that was not due by its clock."""
    waits_for_its_retry(scene)
    with scene.session() as walk:
        walk.execute("select pg_advisory_xact_lock(laneway.lane_key('q', 'L'))")
        cancel = Beside(scene, lambda: PostgresInspect(scene.store()).cancel("1")).start()
        scene.push(job("2"))
        park = f"select laneway.park_v{VERSION}(laneway.now_us(), 'q', array_agg(seq)) from laneway.job where id = '2'"  # noqa: S608
        assert walk.execute(park.encode()).fetchall() == [(1,)]
    cancel.join()
    return scene.stranded()


def committed_late(scene: Scene) -> str:
    """A job's push commits after one behind it in the lane was claimed: it comes before those that were pushed since."""
    late = scene.store()
    with _claimed_beside(scene) as settle, is_open(late):
        late.push([job("1")])
        settle("2")
    return settle("1")


def acted_late(scene: Scene) -> str:
    """So it is if somebody gives a job a new place, and commits late."""
    scene.push(job("1", None, delay=HOUR))
    with _claimed_beside(scene) as settle, scene.session() as late:
        [(now,)] = late.execute(f"select now from laneway.turn_v{VERSION}()".encode()).fetchall()  # noqa: S608
        late.execute("update laneway.job set lane = 'L', state = 1, place = %s, due = %s where id = '1'", (now, now))
        settle("2")
    return settle("1")


def committed_late_with_one_place(scene: Scene) -> str:
    """So it is if both have one place: the store was taken to be quiet in the microsecond in which both came."""
    scene.push(job("1", None, delay=HOUR))
    with _claimed_beside(scene) as settle, scene.session() as late:
        [(now,)] = late.execute(f"select now from laneway.turn_v{VERSION}()".encode()).fetchall()  # noqa: S608
        late.execute("update laneway.job set lane = 'L', state = 1, place = %s, due = %s where id = '1'", (now, now))
        scene.push(job("2"))
        scene.ask("update laneway.job set place = %s, due = %s where id = '2'", now, now)
        scene.ask("select setval('laneway.quiet', %s)", now)
        settle("2")
    return settle("1")


@contextlib.contextmanager
def _claimed_beside(scene: Scene) -> Iterator[Callable[[str], str]]:
    """Give what claims a lane's job after a new one was pushed, and says what is wrong if it is not this one.

    When the block ends another job comes, and all are parked.
    """
    worker = scene.store()
    scene.push(job("0", None))
    claims = take(worker, "a")
    scene.ask("select setval('laneway.quiet', 1)")  # that was long ago

    def settle(id_: str) -> str:
        nonlocal claims
        if id_ == "2":
            scene.push(job("2"))
        claims = worker.exchange("a", done(claims), [ClaimRequest("q", 1)], 1).claims
        found = [claim.unit.id for claim in claims]
        return "" if found == [id_] else f"{found} came before {id_}"

    yield settle
    scene.push(job("3"))
    scene.claim("b", most=9)


def a_walk_that_ends_between_two_of_a_lane(scene: Scene) -> str:
    """The first of a lane is due after the second, and the walk has enough before it comes to it."""
    scene.push(job("1"), job("2"), job("3", None))
    for id_, due in (("1", 30), ("2", 10), ("3", 20)):
        scene.ask("update laneway.job set due = %s, place = %s where id = %s", due, int(id_), id_)
    claims = scene.claim("a")
    return scene.stranded() or ("" if [c.unit.id for c in claims] == ["3"] else f"claimed {claims}")


def lost_and_on_its_way(scene: Scene) -> str:
    """An exchange whose answer was lost is not committed yet when its worker gives back what it does not know of."""
    scene.push(job("1", None))
    lost = scene.store()
    with is_open(lost):
        take(lost, "a")
        back = Beside(scene, lambda: scene.store().give_back("a")).start()
    back.join()
    return f"nobody knows of claims: {rows}" if (rows := scene.ask("select id from laneway.job where state = 4")) else ""


def lost_and_late(scene: Scene) -> str:
    """An exchange that was lost arrives after its worker's claims were given back."""
    scene.push(job("1", None), job("2", None))
    store = scene.store()
    sent: list[Statement] = []
    with store.wire.lend() as line:
        send = line.send

        def note(statements: Sequence[Statement], *, prepare: bool = False) -> None:
            sent.extend(statements)
            send(statements, prepare=prepare)

        line.send = note  # type: ignore[method-assign]
    take(store, "a")
    late = next(statement for statement in sent if f"exchange_v{VERSION}" in statement[0])
    anew = scene.store()
    anew.give_back("a")
    anew.exchange("a", [], [], 0)
    with contextlib.suppress(StoreError), scene.store().wire.lend() as other:
        other.ask(*late)
    return f"nobody knows of claims: {rows}" if (rows := scene.ask("select id from laneway.job where state = 4")) else ""


def given_back_beside_a_mark(scene: Scene) -> str:
    """Somebody has locked a claim for a moment when its worker gives back what it does not know of."""
    scene.push(job("1", None), job("2", None))
    scene.claim("a", most=2)
    with scene.session() as mark:
        mark.execute("select 1 from laneway.job where id = '1' for update")
        back = Beside(scene, lambda: scene.store().give_back("a")).start()
    back.join()
    return f"nobody knows of claims: {rows}" if (rows := scene.ask("select id from laneway.job where state = 4")) else ""


def settled_in_two_orders(scene: Scene) -> str:
    """Two workers settle jobs of the same two lanes, one of them late: in which order do they wait for these lanes?"""
    scene.push(job("1", "A"), job("2", "B"))
    claims = scene.claim("a", most=2)
    with scene.session() as both:
        both.execute("select pg_advisory_xact_lock(laneway.lane_key('q', l)) from unnest('{A,B}'::text[]) l")
        first = Beside(scene, lambda: scene.store().exchange("a", done(claims), [], 0)).start()
        second = Beside(scene, lambda: scene.store().exchange("b", done(claims[::-1]), [], 0)).start()
        until_two_wait(scene)
    first.join(), second.join()
    return first.deadlock or second.deadlock


def collected_in_two_orders(scene: Scene) -> str:
    """Two pushes have payloads for the same two new lanes, A and B; between these each waits for a lane of its own."""
    scene.push(payload("Z", "0"))
    with scene.session() as both, both.transaction(force_rollback=True):
        insert_lanes(both, "X", "Y")
        first = Beside(scene, lambda: scene.push(payload("A", "1"), payload("X", "2"), payload("B", "3"))).start()
        second = Beside(scene, lambda: scene.push(payload("B", "4"), payload("Y", "5"), payload("A", "6"))).start()
        until_two_wait(scene)
    first.join(), second.join()
    return first.deadlock or second.deadlock


def collected_while_the_lane_leaves(scene: Scene) -> str:
    """A payload comes when its lane's run is being settled: the lane leaves, and comes again."""
    scene.push(payload("A", "1"))
    with scene.session() as settle:
        settle.execute("select 1 from laneway.job where lane = 'A' for update")
        push = Beside(scene, lambda: scene.push(payload("A", "2"))).start()
        settle.execute("delete from laneway.payload")
        settle.execute("delete from laneway.job where lane = 'A'")
    push.join()
    there = "select count(*) from laneway.payload p join laneway.job j on j.seq = p.lane"
    return "" if scene.ask(there) == [(1,)] and not push.error else f"the payload is lost: {push.error!r}"


def unique_in_two_orders(scene: Scene) -> str:
    """Two pushes have jobs with the same two keys, A and B; between these each waits for a key of its own."""
    return _in_two_orders(scene, lambda push, key: job(f"{push}-{key}", None, unique=key))


def ids_in_two_orders(scene: Scene) -> str:
    """So it is with ids that were chosen."""
    return _in_two_orders(scene, lambda _, id_: job(id_, None))


def _in_two_orders(scene: Scene, make: Callable[[int, str], Job]) -> str:
    jobs = [[make(number, name) for name in names] for number, names in enumerate(("AXB", "BYA"))]
    third = scene.store()
    scene.push(job("0", None))
    with is_open(third, "rollback"):
        third.push([make(2, name) for name in "XY"])
        first = Beside(scene, lambda: scene.push(*jobs[0])).start()
        second = Beside(scene, lambda: scene.push(*jobs[1])).start()
        until_two_wait(scene)
    first.join(), second.join()
    return first.deadlock or second.deadlock


def claimed_beside_a_claim(scene: Scene) -> str:
    """A claim of jobs without lanes is not committed yet: another one takes the next jobs, and does not wait."""
    return _claims_beside(scene)


def claimed_beside_a_claim_among_lanes(scene: Scene) -> str:
    """So it is where the queue has lanes too."""
    scene.push(job("0"))
    return _claims_beside(scene)


def _claims_beside(scene: Scene) -> str:
    scene.push(job("1", None), job("2", None), job("3", None))
    first = scene.store()
    with is_open(first):
        take(first, "a", most=2)
        other = Beside(scene, lambda: scene.claim("b")).start()
        if other.waits:
            verdict = "it waits"
        else:
            verdict = "" if [claim.unit.id for claim in other.answer or []] == ["3"] else f"claimed {other.answer}"
    other.join()
    return verdict


def pushed_over_a_fold(scene: Scene) -> str:
    """A push is open while others commit and the ledger is added up; then it commits."""
    scene.push(job("0", None))
    late = scene.store()
    with is_open(late):
        late.push([job("1", None), job("2", None)])
        scene.push(job("3", None))
        fold(scene)
    before = scene.miscounted()
    fold(scene)
    return before or scene.miscounted()


def folded_by_two(scene: Scene) -> str:
    """Two add the ledger up at once."""
    scene.push(job("0", None), job("1", None))
    with scene.session() as first:
        first.execute(FOLD)
        second = Beside(scene, lambda: fold(scene)).start()
    second.join()
    return scene.miscounted()


def two_kinds_in_a_queue(scene: Scene) -> str:
    """A job's push is open when the first payload comes into the same queue."""
    scene.push(job("0", None, queue="other"))
    scene.ask("insert into laneway.queue (name) values ('c')")
    late = scene.store()
    with is_open(late):
        late.push([job("1", None, queue="c")])
        push = Beside(scene, lambda: scene.push(payload("A", "1"))).start()
    push.join()
    kinds = scene.ask("select count(distinct side is null) from laneway.job where queue = 'c'")
    return "" if kinds == [(1,)] else "jobs and lanes are in one queue"


def two_kinds_in_a_known_queue(scene: Scene) -> str:
    """So it is if the one who pushes knows the queue, and need not look at it."""
    late = _knows(scene, "c")
    with is_open(late):
        late.push([job(new_id(), None, queue="c")])
        push = Beside(scene, lambda: scene.push(payload("A", "1"))).start()
    push.join()
    kinds = scene.ask("select count(distinct side is null) from laneway.job where queue = 'c'")
    return "" if kinds == [(1,)] else "jobs and lanes are in one queue"


def known_before_it_was_a_collectors(scene: Scene) -> str:
    """A push waits for the step that makes a queue a collector's; when it goes on it must not trust what its client knew."""
    late = _knows(scene, "c")
    with scene.session() as maker:
        maker.execute("select pg_advisory_xact_lock(hashtextextended('c', hashtextextended('laneway', 78)))")
        maker.execute(statements("laneway")["queue_collects"].replace(":collects", "true").replace(":name", "'c'").encode())
        push = Beside(scene, lambda: late.push([job(new_id(), None, queue="c")])).start()
    push.join()
    wrong = "select 1 from laneway.queue q join laneway.job j on j.queue = q.name where q.collects and j.side is null"
    return "a job is in a collector's queue" if scene.ask(wrong) else ""


def known_before_it_was_closed(scene: Scene) -> str:
    """So it is if it waits for a copy that closes the store."""
    late = _knows(scene, "c")
    move = write_move(Move("copy", "elsewhere")).decode()
    with scene.session() as copy:
        copy.execute(f"select laneway.set_move_v{VERSION}(%s, true)".encode(), (move,))
        push = Beside(scene, lambda: late.push([job(new_id(), None, queue="c")])).start()
    push.join()
    return "" if isinstance(push.error, StoreMoved) else "a store that is closed has taken a job"


def _knows(scene: Scene, queue: str) -> PostgresStore:
    """Return a store that has pushed into a queue, which is empty again."""
    store = scene.store()
    for _ in range(2):  # the first one makes the queue
        store.push([job(new_id(), None, queue=queue)])
    store.exchange("a", done(take(store, "a", most=2, queue=queue)), [], 0)
    return store


def another_isolation_level(scene: Scene) -> str:
    """A session sees what was there when its transaction began: it would not see what others did while it waited."""
    scene.push(job("0", None))
    store = scene.store()
    with store.wire.lend() as line:
        line.ask("begin isolation level repeatable read")
        try:
            PostgresPush(store).insert(line, [job("1")])
        except PostgresError as error:
            return "" if error.code == "LW003" else str(error)
        finally:
            line.ask("rollback")
    return "it was accepted"


RACES: tuple[Callable[[Scene], str], ...] = (
    two_claim_one_lane, parked_behind_one_that_leaves, cancelled_beside_a_park, cancelled_beside_a_claim, recovered_beside_a_park,
    parked_by_a_later_clock, committed_late, acted_late, committed_late_with_one_place, a_walk_that_ends_between_two_of_a_lane,
    lost_and_on_its_way, lost_and_late, given_back_beside_a_mark,
    settled_in_two_orders, collected_in_two_orders, collected_while_the_lane_leaves, unique_in_two_orders, ids_in_two_orders,
    claimed_beside_a_claim, claimed_beside_a_claim_among_lanes, pushed_over_a_fold, folded_by_two, two_kinds_in_a_queue,
    two_kinds_in_a_known_queue, known_before_it_was_a_collectors, known_before_it_was_closed, another_isolation_level,
)  # fmt: skip
