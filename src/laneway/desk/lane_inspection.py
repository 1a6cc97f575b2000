"""What `app.inspect` offers for lanes, a collector's and those of jobs: list lanes, look into one, act on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from laneway.core.job import State, check_lane, lane_id
from laneway.errors import ConfigError, UnknownLane, did_you_mean
from laneway.store.inspection import Filter, LaneInfo, LanePage, PayloadInfo, PayloadPage
from laneway.store.paging import LANE_ORDERS

if TYPE_CHECKING:
    from laneway.desk.inspection import Explanation
    from laneway.store.inspection import Inspect

__all__ = ["LaneInspection"]

#: The states of jobs that are not dead; first those that wait behind others.
ALIVE = ("blocked", "ready", "scheduled", "retrying", "running")


class LaneInspection:
    """The lanes' part of `app.inspect`."""

    _store: Callable[[], Inspect]

    if TYPE_CHECKING:

        def explain(self, id: str) -> Explanation: ...  # noqa: A002 - the glossary's word

    def lanes(self, queue: str | None = None, *, order: str = "lag", limit: int = 100, after: str | None = None) -> LanePage:
        """List lanes with work: by lag, size, attempts (the largest first), due (the soonest) or name.

        A leading `-` (`"-size"`) reverses the order. The next page is `lanes(..., after=page.next)`.
        """
        _check_limit(limit)
        if order.removeprefix("-") not in LANE_ORDERS:
            near = did_you_mean(order.removeprefix("-"), LANE_ORDERS)
            raise ConfigError(f'order="{order}": lanes have no such order.{near} There are {", ".join(LANE_ORDERS)}')
        return self._store().lanes(queue, order, limit, after)

    def lane(self, queue: str, lane: str | int) -> LaneInfo:
        """Return a lane with work, or raise UnknownLane."""
        name = check_lane(lane)
        found = self._store().lanes(queue, "name", 1, None, name)
        if not found:
            raise UnknownLane(f'nothing waits or runs in a lane "{name}" of queue {queue}', queue=queue, lane=name)
        return found[0]

    def payloads(self, queue: str, lane: str | int, *, limit: int = 100, after: str | None = None) -> PayloadPage:
        """List the payloads of a collector's lane: first running ones, then waiting ones, the oldest first by score."""
        _check_limit(limit)
        found = self._store().payloads(queue, check_lane(lane), limit, after)
        if not found and after is None:
            self.lane(queue, lane)
        return found

    def run_lane(self, queue: str, lane: str | int) -> bool:
        """Make a lane that waits for its retry due now, or a collector's lane whatever it waits for.

        Returns False if it is due already, runs or is halted; or if its next job is scheduled for later: reschedule that job.
        """
        found = self.lane(queue, lane)
        return found.state in ("scheduled", "retrying") and self._store().retry(found.head)

    def run_lanes(self, queue: str) -> int:
        """Make all lanes of a collector due now that wait for their time or their retry; return their number."""
        return sum(self._store().act_all("retry", Filter(state, queue)) for state in ("retrying", "scheduled"))

    def drop_oldest(self, queue: str, lane: str | int) -> PayloadInfo | None:
        """Remove and return the waiting payload with the lowest score of a collector's lane; None if none waits."""
        dropped = self._store().drop_oldest(queue, check_lane(lane))
        if dropped is None:
            self.lane(queue, lane)
        return dropped

    def drop_lane(self, queue: str, lane: str | int) -> int:
        """Remove everything in a lane: what waits at once, what runs when its run ended. Returns the number of jobs or lanes.

        A lane that is halted by a dead job continues, empty. Other dead jobs stay.
        """
        found = self.lane(queue, lane)
        halted = found.state == "dead"
        dropped = sum(self._store().act_all("delete", Filter(state, queue, lane=found.lane)) for state in ALIVE)
        return dropped + (halted and self._store().delete(found.head))

    def explain_lane(self, queue: str, lane: str | int) -> Explanation:
        """Say why a lane is where it is; for a collector's lane that has finished, how it finished."""
        try:
            return self.explain(self.lane(queue, lane).head)
        except UnknownLane:
            state = self.lane_state(queue, lane)
            if state == "gone":
                raise
            name = check_lane(lane)
            dead = self._store().jobs(Filter("dead", queue, lane=name), 1, None, newest=True)
            return self.explain(dead[0].id if dead and state == "dead" else lane_id(queue, name))

    def lane_state(self, queue: str, lane: str | int) -> State:
        """Return the state of a collector's lane: `dead` if its last payload died, `gone` if the store no longer remembers it."""
        id_ = lane_id(queue, check_lane(lane))
        state = self._store().result(id_).state
        if state == "gone" and self._store().count(Filter("dead", queue, lane=check_lane(lane))):
            return "dead"
        if state == "done":
            last = next((run for run in self._store().recent(1000) if run.id == id_), None)
            return "dead" if last is not None and last.outcome == "dead" else state
        return state


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= 10_000:
        raise ConfigError(f"limit={limit}: use 1 to 10,000")
