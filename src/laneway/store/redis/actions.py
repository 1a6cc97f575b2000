"""Acting: what users do to jobs by hand, one at a time or to many, in steps of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from laneway.core.job import lane_id
from laneway.errors import ConfigError, UnknownJob, UnknownQueue, did_you_mean
from laneway.store.inspection import Filter, PayloadInfo
from laneway.store.redis.candidates import Candidate
from laneway.store.redis.keys import SHARED_KEYS, STORE, WORKERS, queue_key
from laneway.store.redis.queries import RedisQueries
from laneway.store.redis.record import split_headers
from laneway.store.redis.scripts import script

__all__ = ["RedisActions"]

#: The most jobs that one step changes, so that none is long: other clients use the server too.
AT_ONCE = 500
#: How long a queue remembers that a schedule was dropped, seconds: longer than a worker takes from its look to its push.
KEEP_DROPPED = "3600"
ACTIONS = ("retry", "cancel", "delete", "kill", "reschedule")

_anything = msgspec.msgpack.encode({})


class RedisActions(RedisQueries):
    """The half of the inspection side that changes jobs, queues and schedules."""

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job, or make a waiting retry due now."""
        return self._act("retry", id)

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a waiting job at once, mark a running one."""
        return self._act("cancel", id)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a waiting or dead job at once, mark a running one."""
        return self._act("delete", id)

    def kill(self, id: str) -> bool:  # noqa: A002
        """Let a waiting job die at once, mark a running one."""
        return self._act("kill", id)

    def reschedule(self, id: str, delay: int, at: int) -> bool:  # noqa: A002
        """Make a waiting job due at another time."""
        return self._act("reschedule", id, delay, at)

    def _act(self, action: str, id_: str, delay: int = 0, at: int = 0) -> bool:
        self._store.clock()
        raw = id_.encode(errors="replace")
        names = self._store.queues.read()
        answers = [answer[0] for answer in self._store.change("act", names, action, delay, at, _anything, raw)]
        if not any(answer >= 0 for answer in answers):
            raise UnknownJob(f'no job "{id_}" is in the store: it has finished, or never was', id=id_)
        return any(answer > 0 for answer in answers)

    def drop_oldest(self, queue: str, lane: str) -> PayloadInfo | None:
        """Remove the oldest payload of a collector's lane that does not run."""
        (found,) = self._store.change("drop_oldest", (queue,), lane_id(queue, lane))
        return PayloadInfo(body=split_headers(found[0])[0], score=float(found[1]), running=False) if found else None

    def act_all(self, action: str, which: Filter, delay: int = 0, at: int = 0) -> int:
        """Act on all jobs that match now."""
        if action not in ACTIONS:
            near = did_you_mean(action, ACTIONS)
            raise ConfigError(f'"{action}" is nothing that can be done to jobs.{near} There are {", ".join(ACTIONS)}')
        matching: dict[str, list[Candidate]] = {}
        for one, _ in self.matching(which):
            matching.setdefault(one.queue, []).append(one)
        asked: dict[str, Any] = {name: getattr(which, name) for name in ("state", "task", "lane", "error")}
        still = msgspec.msgpack.encode({name: value for name, value in {**asked, "failing": which.failing}.items() if value})
        changed = 0
        for queue, found in matching.items():
            for start in range(0, len(found), AT_ONCE):
                ids = [one.id for one in found[start : start + AT_ONCE]]
                (answers,) = self._store.change("act", (queue,), action, delay, at, still, *ids)
                changed += sum(answer > 0 for answer in answers)
        return changed

    def clear(self, queue: str) -> int:
        """Remove all waiting jobs of a queue."""
        return self.act_all("delete", Filter(state="waiting", queue=queue))

    def pause(self, queue: str, paused: bool, declared: Collection[str] = (), by: str = "") -> None:
        """Stop or resume claims from a queue."""
        known = {*self._store.queues.read(), *declared}
        if not paused and queue not in known:
            raise UnknownQueue(f'no queue "{queue}" is in {self._store}.{did_you_mean(queue, known)}', queue=queue)
        number = self._store.queues.number(queue)
        self._store.change("pause", (queue,), int(paused), by, number)

    def pause_schedule(self, name: str, paused: bool, by: str = "") -> None:
        """Stop or resume a schedule."""
        self._store.check_open()
        if paused:
            self._store.wire.ask(("HSETNX", STORE + SHARED_KEYS["PAUSED"], name, by))
        else:
            self._change_schedule("resume_schedule", name)

    def set_schedule(self, name: str, entry: bytes) -> None:
        """Keep a schedule, from now on."""
        self._store.check_open()
        self._change_schedule("set_schedule", name, entry)

    def _change_schedule(self, change: str, name: str, *arguments: bytes) -> None:
        """Run a script that lets a schedule begin now: not before the time that workers see."""
        seen = str(self._store.time_of_schedules())
        self._store.wire.ask(("EVALSHA", script(change).digest, "1", STORE, self._store.clock(), seen, name, *arguments))

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule that was kept."""
        self._store.check_open()
        if not self._store.wire.ask(("HDEL", STORE + SHARED_KEYS["KEPT"], name)):
            return False
        dropped = str(self._store.time_of_schedules())
        queues = self._store.queues.read()
        # A worker may have found the schedule kept and not have pushed its job yet: the queues refuse that from here on.
        marks = [(queue_key(queue, "DROPPED") + name, dropped) for queue in queues]
        keys = [STORE + SHARED_KEYS[key] for key in ("PAUSED", "SKIPPED")] + [queue_key(queue, "SLOTS") for queue in queues]
        self._store.wire.ask_all(
            [*(("SET", *mark, "EX", KEEP_DROPPED) for mark in marks), *(("HDEL", key, name) for key in keys)]
        )
        return True

    def tell(self, worker: str, command: str) -> bool:
        """Leave a command for a worker's next beat."""
        return bool(self._store.wire.ask(("EVALSHA", script("tell").digest, "1", WORKERS, worker, command)))

    def forget_error(self, id: str) -> bool:  # noqa: A002
        """Forget a kind of failure."""
        return self._store.statistics.forget_fault(id)
