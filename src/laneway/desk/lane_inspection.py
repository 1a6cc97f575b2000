"""What `app.inspect` offers for lanes, a collector's and those of jobs: list lanes, look into one, act on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.core.job import STATES, TIMED, State, check_lane, lane_id
from laneway.errors import ConfigError, UnknownLane
from laneway.store.inspection import Filter, LaneInfo, LanePage, PayloadInfo, PayloadPage

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.inspection import Explanation

__all__ = ["LaneInspection", "check_limit"]

#: The states of jobs that are not dead; first those that wait behind others.
ALIVE = sorted((state for state in STATES if state != "dead"), key=lambda state: state != "blocked")


class LaneInspection:
    """The lanes' part of `app.inspect`."""

    _app: App

    def lanes(self, queue: str | None = None, *, order: str = "lag", limit: int = 100, after: str | None = None) -> LanePage:
        """List lanes with work: by lag, size, attempts (the largest first), due (the soonest) or name.

        A leading `-` (`"-size"`) reverses the order. The next page is `lanes(..., after=page.next)`.
        """
        check_limit(limit)
        return self._app.store_inspect.lanes(queue, order, limit, after)

    def lane(self, queue: str, lane: str | int) -> LaneInfo:
        """Return a lane with work, or raise UnknownLane."""
        name = check_lane(lane)
        found = self._app.store_inspect.lanes(queue, "name", 1, None, name)
        if not found:
            raise UnknownLane(f'nothing waits or runs in a lane "{name}" of queue {queue}', queue=queue, lane=name)
        return found[0]

    def payloads(self, queue: str, lane: str | int, *, limit: int = 100, after: str | None = None) -> PayloadPage:
        """List the payloads of a collector's lane: first running ones, then waiting ones, the oldest first by score."""
        check_limit(limit)
        found = self._app.store_inspect.payloads(queue, check_lane(lane), limit, after)
        if not found and after is None:
            self.lane(queue, lane)
        return found

    def run_lane(self, queue: str, lane: str | int) -> bool:
        """Make a lane that waits for its retry due now, or a collector's lane whatever it waits for.

        Returns False if it is due already, runs or is halted; or if its next job is scheduled for later: reschedule that job.
        """
        found = self.lane(queue, lane)
        return found.state in TIMED and self._app.store_inspect.retry(found.head)

    def run_lanes(self, queue: str) -> int:
        """Make all lanes of a collector due now that wait for their time or their retry; return their number."""
        return sum(self._app.store_inspect.act_all("retry", Filter(state, queue)) for state in TIMED)

    def drop_oldest(self, queue: str, lane: str | int) -> PayloadInfo | None:
        """Remove and return the waiting payload with the lowest score of a collector's lane; None if none waits."""
        dropped = self._app.store_inspect.drop_oldest(queue, check_lane(lane))
        if dropped is None:
            self.lane(queue, lane)
        return dropped

    def drop_lane(self, queue: str, lane: str | int) -> int:
        """Remove everything in a lane: what waits at once, what runs when its run ended. Returns the number of jobs or lanes.

        A lane that is halted by a dead job continues, empty. Other dead jobs stay.
        """
        found = self.lane(queue, lane)
        halted = found.state == "dead"
        dropped = sum(self._app.store_inspect.act_all("delete", Filter(state, queue, lane=found.lane)) for state in ALIVE)
        return dropped + (halted and self._app.store_inspect.delete(found.head))

    def explain_lane(self, queue: str, lane: str | int) -> Explanation:
        """Say why a lane is where it is; for a collector's lane that has finished, how it finished."""
        try:
            return self._app.inspect.explain(self.lane(queue, lane).head)
        except UnknownLane:
            state = self.lane_state(queue, lane)
            if state == "gone":
                raise
            name = check_lane(lane)
            dead = self._app.store_inspect.jobs(Filter("dead", queue, lane=name), 1, None, newest=True)
            return self._app.inspect.explain(dead[0].id if dead and state == "dead" else lane_id(queue, name))

    def lane_state(self, queue: str, lane: str | int) -> State:
        """Return the state of a collector's lane: `dead` if its last payload died, `gone` if the store no longer remembers it."""
        id_ = lane_id(queue, check_lane(lane))
        state = self._app.store_inspect.result(id_).state
        if state == "gone" and self._app.store_inspect.count(Filter("dead", queue, lane=check_lane(lane))):
            return "dead"
        if state == "done":
            last = next((run for run in self._app.store_inspect.recent(1000) if run.id == id_), None)
            return "dead" if last is not None and last.outcome == "dead" else state
        return state


def check_limit(limit: int) -> None:
    if not 1 <= limit <= 10_000:
        raise ConfigError(f"limit={limit}: use 1 to 10,000")
