"""The site: what the endpoints of one dashboard share."""

from __future__ import annotations

from laneway.desk.app import App
from laneway.present.snapshot import Snapshot
from laneway.web.access import Access
from laneway.web.audit import audit
from laneway.web.documents import Documents, figures
from laneway.web.health import Health, Pulse
from laneway.web.live import Live
from laneway.web.metrics import Metrics
from laneway.web.operations import Operation, Operations
from laneway.web.redact import Redactor
from laneway.web.threads import in_thread

__all__ = ["SHORT", "Site"]

#: Of a request's scope: no answer may take long, see `exchange.http_scope`.
SHORT = "laneway.short"


class Site:
    """An app and all that its dashboard knows. Nothing is opened before it is asked for, and nothing of the app's is closed."""

    def __init__(self, app: App, access: Access, redactor: Redactor, pulse: Pulse, *, open_health: bool) -> None:
        self.app = app
        self.access = access
        self.documents = Documents(app, redactor)
        self.pulse = pulse
        self.open_health = open_health
        self.metrics = Metrics()
        self.operations = Operations(_finished)
        self.live = Live(self._figures)

    def snapshot(self) -> tuple[Snapshot, Health]:
        """Take a snapshot of the store, and say how it is. Blocks."""
        seen = Snapshot.of(self.app)
        return seen, self.pulse.judge(seen)

    async def _figures(self) -> object:
        return figures(*await in_thread(self.snapshot))


def _finished(operation: Operation) -> None:
    said = f"{operation.state}: {operation.changed} of {operation.total} changed"
    if operation.error is not None:
        said = f"failed: {operation.error.message}"
    audit(operation.who, operation.action, {**operation.target, "operation": operation.id}, said)
