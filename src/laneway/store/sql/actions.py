"""Acting: what users do to jobs by hand, one at a time or to many, in transactions of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from laneway.core.job import lane_id
from laneway.errors import ConfigError, UnknownJob, UnknownQueue, did_you_mean
from laneway.store.inspection import Filter, PayloadInfo
from laneway.store.sql import lanes, transitions
from laneway.store.sql.filters import condition, where
from laneway.store.sql.port import Database, Turn
from laneway.store.sql.rows import DEAD, READY, RETRYING, RUNNING, Row

__all__ = ["Action", "Actions"]

#: The most jobs that one transaction changes, so that none is long: other clients want to write too.
AT_ONCE = 500

#: Changes a job, or returns False if there is nothing to change.
Action = Callable[[Turn, Row], bool]


class Actions:
    """The half of the inspection side that changes jobs, queues and schedules."""

    def __init__(self, store: Database) -> None:
        self._store = store

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job, or make a waiting retry due now."""
        return self._act(id, _retry)

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a waiting job at once, mark a running one."""
        return self._act(id, _cancel)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a waiting or dead job at once, mark a running one."""
        return self._act(id, _delete)

    def kill(self, id: str) -> bool:  # noqa: A002
        """Let a waiting job die at once, mark a running one."""
        return self._act(id, _kill)

    def reschedule(self, id: str, delay: int, at: int) -> bool:  # noqa: A002
        """Make a waiting job due at another time."""
        return self._act(id, partial(_reschedule, delay=delay, at=at))

    def _act(self, id_: str, action: Action) -> bool:
        with self._store.turn() as turn:
            turn.check_open(self._store)
            turn.hold((id_,))
            row = turn.find("find", id=id_) or turn.find("finished_find", id=id_, now=turn.now)
            if row is None:
                raise UnknownJob(f'no job "{id_}" is in the store: it has finished, or never was', id=id_)
            return _act(turn, row, action)

    def drop_oldest(self, queue: str, lane: str) -> PayloadInfo | None:
        """Remove the oldest payload of a collector's lane that does not run."""
        with self._store.turn() as turn:
            turn.check_open(self._store)
            turn.hold((lane_id(queue, lane),))
            row = turn.find("lane_find", id=lane_id(queue, lane))
            return None if row is None else lanes.drop_oldest(turn, row)

    def act_all(self, action: str, which: Filter, delay: int = 0, at: int = 0) -> int:
        """Act on all jobs that match now."""
        actions: dict[str, Action] = {
            "retry": _retry, "cancel": _cancel, "delete": _delete, "kill": _kill,
            "reschedule": partial(_reschedule, delay=delay, at=at),
        }  # fmt: skip
        if action not in actions:
            near = did_you_mean(action, actions)
            raise ConfigError(f'"{action}" is nothing that can be done to jobs.{near} There are {", ".join(actions)}')
        return self._act_all(actions[action], which)

    def clear(self, queue: str) -> int:
        """Remove all waiting jobs of a queue."""
        return self._act_all(_delete, Filter(state="waiting", queue=queue))

    def _act_all(self, action: Action, which: Filter) -> int:
        with self._store.reading() as reading:
            terms, values = condition(which, reading)
            matching = [id_ for (id_,) in reading.select("match_jobs", {"table": where(which).name, "terms": terms}, **values)]
        return sum(self._act_some(matching[at : at + AT_ONCE], action, which) for at in range(0, len(matching), AT_ONCE))

    def _act_some(self, ids: list[str], action: Action, which: Filter) -> int:
        """Act on those of these jobs that still match, in one step."""
        changed, table = 0, where(which)
        with self._store.turn() as turn:
            turn.check_open(self._store)
            terms, values = condition(which, turn)
            words = {"table": table.name, "columns": table.columns, "terms": terms}
            turn.hold(ids)
            for id_ in ids:
                # Each is read anew: the action on the one before may have let it out of its lane.
                for row in turn.select("match_job", words, **values, id=id_):
                    changed += _act(turn, Row(*row), action)
        return changed

    def pause(self, queue: str, paused: bool, declared: Collection[str] = (), by: str = "") -> None:
        """Stop or resume claims from a queue."""
        with self._store.turn() as turn:
            turn.check_open(self._store)
            if not paused and turn.find_queue(queue) is None and queue not in declared:
                known = {*(one.name for one in turn.queues()), *declared}
                raise UnknownQueue(f'no queue "{queue}" is in {self._store}.{did_you_mean(queue, known)}', queue=queue)
            turn.set_paused(queue, paused, by)
        self._store.ring()

    def pause_schedule(self, name: str, paused: bool, by: str = "") -> None:
        """Stop or resume a schedule."""
        with self._store.turn() as turn:
            turn.check_open(self._store)
            if paused:
                turn.change("schedule_pause", name=name, by=by)
            else:
                turn.change("schedule_resume", now=turn.now, name=name)

    def set_schedule(self, name: str, entry: bytes) -> None:
        """Keep a schedule, from now on."""
        with self._store.turn() as turn:
            turn.check_open(self._store)
            turn.change("schedule_set", name=name, now=turn.now, entry=entry)

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule that was kept."""
        with self._store.turn() as turn:
            turn.check_open(self._store)
            return turn.change("schedule_drop", name=name) > 0

    def tell(self, worker: str, command: str) -> bool:
        """Leave a command for a worker's next beat."""
        with self._store.turn() as turn:
            found = turn.rows("command_read", id=worker)
            if not found:
                return False
            turn.change("command_write", command=f"{found[0][0] or ''} {command}".strip(), id=worker)
        return True

    def forget_error(self, id: str) -> bool:  # noqa: A002
        """Forget a kind of failure."""
        with self._store.turn() as turn:
            return turn.change("fault_forget", id=id) > 0


# -- actions -----------------------------------------------------------------------------------------------------


def _act(turn: Turn, row: Row, action: Action) -> bool:
    """Act on a job; a finished one can only be deleted, and one that a user's transaction has finished is about to leave."""
    if row.finish is not None:
        return False
    if row.state <= DEAD:
        turn.queue(row.queue)  # counted as of now, before a due time changes: what became due must not be counted twice
        return action(turn, row)
    return action is _delete and turn.change("finished_drop", id=row.id) > 0


def _retry(turn: Turn, row: Row) -> bool:
    if row.score is not None:
        lanes.replay(turn, row)
        return True
    if row.state == DEAD:
        if row.holds:  # it halts its lane, and keeps its place
            turn.change("replay_here", now=turn.now, id=row.id)
        else:
            turn.change("replay", seq=turn.next_seq(), now=turn.now, id=row.id)
        turn.count(row.queue, DEAD, READY)
        return True
    if row.waits and row.due > turn.now and (row.holds or row.failed or row.side is not None):
        _move_due(turn, row, READY, turn.now)
        return True
    return False


def _cancel(turn: Turn, row: Row) -> bool:
    if row.state == DEAD:
        return False
    if row.state == RUNNING or row.side is not None:
        return _ask(turn, row, "cancel")
    transitions.leave(turn, row, turn.counted(row), "cancelled")
    return True


def _delete(turn: Turn, row: Row) -> bool:
    if row.state == RUNNING or row.side is not None:
        return _ask(turn, row, "delete")
    transitions.leave(turn, row, turn.counted(row), "")
    return True


def _kill(turn: Turn, row: Row) -> bool:
    if row.state == DEAD:
        return False
    if row.state == RUNNING or row.side is not None:
        return _ask(turn, row, "kill")
    transitions.die(turn, row, turn.counted(row), transitions.KILL, counts=False)
    return True


def _ask(turn: Turn, row: Row, mark: str) -> bool:
    """Mark a running job, or a collector's lane, with a request."""
    if row.side is None:
        turn.change("mark", mark=mark, id=row.id)
    else:
        lanes.ask(turn, row, mark)
    return True


def _reschedule(turn: Turn, row: Row, *, delay: int, at: int) -> bool:
    if row.state >= RUNNING:
        return False
    due = max(at, turn.now + delay)
    state = turn.waiting(row.queue, due)
    if row.ran or row.side is not None:
        _move_due(turn, row, row.state if row.failed else state, due)
        return True
    expires = None if row.expires is None else row.expires - row.place + due
    turn.change("replace", seq=turn.next_seq(), due=due, expires=expires, state=state, id=row.id)
    turn.waits(row, turn.counted(row), due)
    if row.holds and row.lane is not None:
        turn.let_out(row.queue, (row.lane,))
    return True


def _move_due(turn: Turn, row: Row, state: int, due: int) -> None:
    """Move the due time of a job that has run, or of a collector's lane: it keeps its place."""
    turn.change("move_due", state=state, due=due, id=row.id)
    turn.waits(row, turn.counted(row), due, failed=state == RETRYING)
