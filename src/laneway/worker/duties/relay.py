"""The relay's duty: rows of the app's outbox become jobs.

Every worker has this duty, and one worker at a time does it: the others look every second whether its lease has ended.

Enters: rows of the user's database.  Leaves: jobs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway.errors import SchemaError, StoreError
from laneway.logs import log
from laneway.outbox.database import OutboxURL, open_database
from laneway.outbox.relay import Relay
from laneway.worker.duties.service import Service

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["RelayDuty"]

#: How often the relay looks for rows: while some came within the last second, and later; seconds.
BUSY, IDLE = 0.01, 0.15
#: How often the others look whether it is gone, and how long it waits after an error, seconds.
WAITS = 1.0
#: How long a stop waits for the current step, seconds.
PATIENCE = 3.0
#: A database that stays away is reported again after this long, seconds.
AGAIN = 60.0


class RelayDuty(Service):
    """Relays until it is stopped."""

    name = "relay"

    def __init__(self, app: App, outbox: OutboxURL) -> None:
        super().__init__()
        self.relay = Relay(open_database(outbox), lambda: app.store)
        self.carried = 0  #: rows that were handed over, or set aside
        self._came = float("-inf")  # when the last rows came
        self._trouble = ""
        self._logged_at = float("-inf")

    def run(self) -> None:
        """Carry rows over until this worker stops; then let another one take over."""
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.carry_portion()
        self.relay.release()
        self.relay.database.close()

    def stop(self, within: float | None = None) -> bool:
        """End after the current step. If the database does not answer, do not wait for it: the lease then expires by itself."""
        return super().stop(PATIENCE if within is None else within)

    def carry_portion(self) -> float:
        """Carry a portion, if there is one and it is this relay's turn; return how long to wait, seconds."""
        try:
            found = self.relay.step()
        except StoreError as error:
            self._report(error)
            return 10 * WAITS if isinstance(error, SchemaError) else WAITS
        except Exception:  # noqa: BLE001 - as in every duty: the next turn comes
            log.exception("outbox relay failed; it is tried again")
            return WAITS
        if self._trouble:
            log.info("%s: the relay goes on", self.relay.database)
            self._trouble = ""
        if not found.holds:
            return WAITS
        if found.carried:
            self.carried += found.carried
            self._came = time.monotonic()
            return 0.0
        return BUSY if time.monotonic() - self._came < 1 else IDLE

    def drain(self, seconds: float = 5.0) -> None:
        """Carry all rows that are there, unless another relay does it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.carry_portion() == 0.0:
            pass
        self.relay.release()
        self.relay.database.close()

    def _report(self, error: StoreError) -> None:
        """Log why rows wait: once, and again every minute."""
        kind = type(error).__name__
        if kind != self._trouble or time.monotonic() - self._logged_at > AGAIN:
            log.warning("rows of the outbox wait: %s", error)
            self._trouble, self._logged_at = kind, time.monotonic()
