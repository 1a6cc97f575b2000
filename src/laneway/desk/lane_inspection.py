"""What `app.inspect` offers for lanes: list them, look into one, and act on it. A collector's lanes and those of jobs alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from laneway.core.job import State, check_lane, lane_id
from laneway.errors import ConfigError, UnknownLane, did_you_mean
from laneway.store.inspection import LANE_ORDERS, Filter, LaneInfo, LanePage, PayloadInfo, PayloadPage

if TYPE_CHECKING:
    from laneway.desk.inspection import Explanation
    from laneway.store.inspection import Inspect

__all__ = ["LaneInspection"]

#: The states of what is not dead; those that wait behind others first.
ALIVE = ("blocked", "ready", "scheduled", "retrying", "running")


class LaneInspection:
    """The lanes' part of `app.inspect`."""

    _store: Callable[[], Inspect]

    if TYPE_CHECKING:

        def explain(self, id: str) -> Explanation: ...  # noqa: A002 - the glossary's word

    def lanes(self, queue: str | None = None, *, order: str = "lag", limit: int = 100, after: str | None = None) -> LanePage:
        """List lanes that have something to do: by lag, size, attempts (the largest first), due (the soonest) or name.

        With `-` in front (`"-size"`) the other way round. The next page is `lanes(..., after=page.next)`.
        """
        _check_limit(limit)
        if order.removeprefix("-") not in LANE_ORDERS:
            near = did_you_mean(order.removeprefix("-"), LANE_ORDERS)
            raise ConfigError(f'order="{order}": lanes have no such order.{near} There are {", ".join(LANE_ORDERS)}')
        return self._store().lanes(queue, order, limit, after)

    def lane(self, queue: str, lane: str | int) -> LaneInfo:
        """Return a lane that has something to do, or raise UnknownLane."""
        name = check_lane(lane)
        found = self._store().lanes(queue, "name", 1, None, name)
        if not found:
            raise UnknownLane(f'nothing waits or runs in a lane "{name}" of queue {queue}', queue=queue, lane=name)
        return found[0]

    def payloads(self, queue: str, lane: str | int, *, limit: int = 100, after: str | None = None) -> PayloadPage:
        """List the payloads of a collector's lane: first what runs, then what waits, the oldest first by score."""
        _check_limit(limit)
        found = self._store().payloads(queue, check_lane(lane), limit, after)
        if not found and after is None:
            self.lane(queue, lane)
        return found

    def run_lane(self, queue: str, lane: str | int) -> bool:
        """Let a lane run now that waits for its retry, or a collector's whatever it waits for.

        False if it is due already, runs or is halted; or if its next job is to run later: that can be rescheduled.
        """
        found = self.lane(queue, lane)
        return found.state in ("scheduled", "retrying") and self._store().retry(found.head)

    def run_lanes(self, queue: str) -> int:
        """Let all lanes of a collector run now that wait for their time or their retry; return how many."""
        return sum(self._store().act_all("retry", Filter(state, queue)) for state in ("retrying", "scheduled"))

    def drop_oldest(self, queue: str, lane: str | int) -> PayloadInfo | None:
        """Remove the payload with the lowest score that waits in a collector's lane, and return it; None if none waits."""
        dropped = self._store().drop_oldest(queue, check_lane(lane))
        if dropped is None:
            self.lane(queue, lane)
        return dropped

    def drop_lane(self, queue: str, lane: str | int) -> int:
        """Remove all that is in a lane: what waits at once, what runs when its run has ended. How many jobs or lanes it were.

        One that is halted by a dead job goes on empty. What else is dead stays.
        """
        found = self.lane(queue, lane)
        halted = found.state == "dead"
        dropped = sum(self._store().act_all("delete", Filter(state, queue, lane=found.lane)) for state in ALIVE)
        return dropped + (halted and self._store().delete(found.head))

    def explain_lane(self, queue: str, lane: str | int) -> Explanation:
        """Say why a lane is where it is; of a collector's that has finished, how."""
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
        """Return where a collector's lane stands: `dead` if its last payload died, `gone` if nobody remembers it."""
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
