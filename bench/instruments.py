"""What a middleware, OpenTelemetry and Sentry cost, beside the same work without them in the same run.

make bench ARGS="instruments"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import sentry_sdk
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from any_store import drained
from harness import Table, alternate, rate
from laneway import App, Draft, JobContext
from laneway.contrib import opentelemetry, sentry

JOBS = 10_000
SINGLE = 1_000


class Nowhere(SpanExporter):
    """Exports to nobody: what is measured is what the SDK does in the program's own threads and in its own."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - as it is called
        return SpanExportResult.SUCCESS


class Silent(Transport):
    """Sends to nobody."""

    def capture_envelope(self, envelope: Envelope) -> None:
        """Do nothing."""


def middleware(app: App) -> None:
    """Add a middleware around runs and one around enqueues."""

    @app.middleware
    def run(_: JobContext) -> Iterator[None]:
        yield

    @app.client_middleware
    def enqueue(_: Draft) -> Iterator[None]:
        yield


def otel(app: App, sampler: Sampler) -> None:
    """Trace with the SDK, its batch processor and its metrics."""
    provider = TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=100_000))
    opentelemetry.instrument(app, provider, MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))


def nothing(app: App) -> None:
    """Add nothing."""


SIDES: dict[str, tuple[Callable[[App], None], float | None]] = {
    "nothing": (nothing, None),
    "an empty middleware": (middleware, None),
    "OpenTelemetry, API without an SDK": (opentelemetry.instrument, None),
    "OpenTelemetry, metrics, no span sampled": (partial(otel, sampler=ALWAYS_OFF), None),
    "OpenTelemetry, metrics, every span sampled": (partial(otel, sampler=ALWAYS_ON), None),
    "Sentry, errors only": (sentry.instrument, 0.0),
    "Sentry, every run a transaction": (sentry.instrument, 1.0),
}


def instruments(where: Path) -> None:
    """No-op jobs through 10 slots, and enqueues one by one and in bulk."""

    class Side:
        """An app with an instrument, on a store of its own."""

        def __init__(self, number: int, instrument: Callable[[App], None], traced: float | None) -> None:
            self._app = App(f"sqlite:///{where / f'{number}.db'}")
            self._traced = traced
            instrument(self._app)

            @self._app.task
            def nothing(number: int) -> None: ...

            self._task = nothing

        def _set_up(self) -> None:
            sentry_sdk.get_client().close()
            if self._traced is not None:
                sentry_sdk.init(
                    "http://key@localhost/1", transport=Silent(), auto_enabling_integrations=False,
                    traces_sample_rate=self._traced or None,
                )  # fmt: skip

        def bulk(self) -> float:
            self._set_up()
            figure = rate(JOBS, lambda: self._task.enqueue_many((n,) for n in range(JOBS)))
            self._app.inspect.delete_all("ready")
            return figure

        def single(self) -> float:
            self._set_up()
            figure = rate(SINGLE, lambda: [self._task.enqueue(n) for n in range(SINGLE)])
            self._app.inspect.delete_all("ready")
            return figure

        def runs(self) -> float:
            self._set_up()
            self._task.enqueue_many((n,) for n in range(JOBS))
            return drained(self._app, JOBS)

    sides = [Side(number, *side) for number, side in enumerate(SIDES.values())]
    for title, figures in (
        ("no-op jobs through one worker with 10 slots", alternate(*(side.runs for side in sides))),
        ("enqueued one by one", alternate(*(side.single for side in sides))),
        ("enqueued by enqueue_many", alternate(*(side.bulk for side in sides))),
    ):
        table = Table(f"{title}, per second", "", "jobs/s", "of nothing", "µs each more")
        for name, figure in zip(SIDES, figures, strict=True):
            table.row(name, figure, figure / figures[0], 1e6 / figure - 1e6 / figures[0])


PARTS = {"instruments": instruments}
