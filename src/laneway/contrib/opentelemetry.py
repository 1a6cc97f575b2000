"""OpenTelemetry: spans and metrics of enqueues and runs, named by the semantic conventions for messaging.

The span of an enqueue travels in the job's headers. The first run is its child, in the same trace; so is a retry, which is also
linked with the enqueue and, if it ran in the same process, with the attempt before. A collector's run has a trace of its own, and
is linked with the enqueues of all its payloads.

Enters: drafts, jobs and events.  Leaves: spans and measurements, through the OpenTelemetry API.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import Token

from laneway.contrib.instruments import Guard, add_headers, within
from laneway.core.instant import SECOND
from laneway.core.outcome import Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.desk.app import App
from laneway.desk.context import JobContext, gravest
from laneway.desk.enqueue import AnyDraft
from laneway.errors import ConfigError
from laneway.events import Death, RunEnded, RunFailed, WorkerStopped

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
except ModuleNotFoundError as missing:
    raise ConfigError('laneway.contrib.opentelemetry needs OpenTelemetry: pip install "laneway[otel]"') from missing

__all__ = ["instrument"]

Attributes = dict[str, str | int]

#: How many jobs' last spans a process remembers, for the links of their retries.
REMEMBERED = 1000
#: How long the end of a worker or an isolated run waits for exporters, seconds. The SDK's own limit does not end an export.
FLUSH = 5.0
#: Bounds of the histograms, seconds: those of the conventions, and longer ones for waiting.
SHORT = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
LONG = (*SHORT, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 86400.0)

_CHUNK = context.create_key("laneway-chunk")
_instrumented: weakref.WeakSet[App] = weakref.WeakSet()


def instrument(
    app: App, tracer_provider: trace.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
) -> None:
    """Trace and measure an app's enqueues and runs. Calling it again has no effect.

    Without providers the global ones are used, also if they are set later.
    """
    if app in _instrumented:
        return
    _instrumented.add(app)
    import laneway  # noqa: PLC0415 - the front door imports the desk

    tracer = trace.get_tracer("laneway", laneway.__version__, tracer_provider)
    meter = metrics.get_meter("laneway", laneway.__version__, meter_provider)
    guard = Guard("OpenTelemetry")
    sends, runs, measures = _Sends(guard, tracer, meter), _Runs(guard, tracer, app), _Measures(meter)
    app.client_middleware(sends.around)
    app.middleware(runs.around)
    events = app.hooks.events
    events.listen(RunFailed, lambda event: guard(runs.failed, event.job, event.outcomes))
    events.listen(Death, lambda event: guard(runs.failed, event.job, (event.outcome,)))
    events.listen(RunEnded, lambda event: guard(measures.ended, event))
    events.listen(RunEnded, lambda event: runs.forget(event.job))
    events.listen(WorkerStopped, lambda _: within(FLUSH, lambda: guard(_flush, tracer_provider, meter_provider)))


def _flush(tracer_provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None) -> None:
    """Export what is left: the process of an isolated run ends at once, and exports nothing by itself."""
    for provider in (tracer_provider or trace.get_tracer_provider(), meter_provider or metrics.get_meter_provider()):
        flush = getattr(provider, "force_flush", None)  # only the SDK's providers have it
        if flush is not None:
            flush()


def _attributes(operation: str, queue: str, task: str) -> Attributes:
    return {
        "messaging.system": "laneway", "messaging.operation.type": operation, "messaging.operation.name": operation,
        "messaging.destination.name": queue, "laneway.task": task,
    }  # fmt: skip


def _measured(operation: str, queue: str, task: str) -> Attributes:
    """Return the attributes of measurements: few values each, since every combination is a series of its own."""
    attributes = _attributes(operation, queue, task)
    del attributes["messaging.operation.type"]
    return attributes


# -- enqueues ----------------------------------------------------------------------------------------------------


class _Send:
    """The span of an enqueue: of one job, or of the jobs of a chunk that have the same task and queue."""

    def __init__(self, span: Span, inside: context.Context, measured: Attributes) -> None:
        self.span = span
        self.measured = measured
        self.token: Token[context.Context] | None = None  # of the context, for the first span of a chunk
        self.number = 1
        self.began = time.perf_counter()
        self.headers: dict[str, str] = {}
        propagate.inject(self.headers, inside)


class _Chunk:
    """The drafts that are pushed together."""

    def __init__(self) -> None:
        self.outside = context.get_current()
        self.sends: dict[tuple[str, str], _Send] = {}


class _Sends:
    """Spans and measurements of enqueues."""

    def __init__(self, guard: Guard, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self._guard = guard
        self._tracer = tracer
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs and payloads that were enqueued, or failed to be"
        )
        self._took = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long an enqueue took", explicit_bucket_boundaries_advisory=SHORT
        )

    def around(self, draft: AnyDraft) -> Iterator[None]:
        """Put a span around the enqueue of a draft; the drafts of a chunk share one."""
        send = self._guard(self._begin, draft)
        try:
            yield
        except BaseException as error:
            if send is not None:
                self._guard(self._end, send, draft, error)
            raise
        if send is not None:
            self._guard(self._end, send, draft, None)

    def _begin(self, draft: AnyDraft) -> _Send | None:
        """Begin a span, or join the one of the chunk: then the draft that began it ends it."""
        found = context.get_value(_CHUNK)
        chunk = found if isinstance(found, _Chunk) else _Chunk()
        key = (draft.queue, draft.task)
        send = chunk.sends.get(key)
        if send is not None:
            send.number += 1
            add_headers(draft.headers, send.headers)
            return None
        span = self._tracer.start_span(
            f"send {draft.queue}", chunk.outside, SpanKind.PRODUCER, _attributes("send", draft.queue, draft.task)
        )
        inside = trace.set_span_in_context(span, chunk.outside)
        send = chunk.sends[key] = _Send(span, inside, _measured("send", draft.queue, draft.task))
        add_headers(draft.headers, send.headers)
        if chunk is not found:
            send.token = context.attach(context.set_value(_CHUNK, chunk, inside))
        return send

    def _end(self, send: _Send, draft: AnyDraft, error: BaseException | None) -> None:
        span, measured = send.span, send.measured
        if send.token is not None:
            context.detach(send.token)
        if send.number > 1:
            span.set_attribute("messaging.batch.message_count", send.number)
        elif error is None:
            span.set_attribute("messaging.message.id", draft.id)
            if draft.lane is not None:
                span.set_attribute("laneway.lane", str(draft.lane))
        if error is not None:
            measured["error.type"] = _fail(span, [ErrorInfo.of(error)])
        span.end()
        self._took.record(time.perf_counter() - send.began, measured)
        self._sent.add(send.number, measured)


# -- runs --------------------------------------------------------------------------------------------------------


class _Runs:
    """Spans of runs."""

    def __init__(self, guard: Guard, tracer: trace.Tracer, app: App) -> None:
        self._guard = guard
        self._tracer = tracer
        self._describe = app.hooks.describe
        self._spans: dict[int, tuple[Span, Token[context.Context]]] = {}  # of runs in this process, by the claim's token
        self._before: OrderedDict[str, SpanContext] = OrderedDict()  # the last span of jobs that run again

    def around(self, job: JobContext) -> Iterator[None]:
        """Put a span around a run."""
        try:
            self._guard(self._begin, job)
            yield
        except BaseException as error:
            self._guard(self._end, job, error)
            raise
        self._guard(self._end, job, None)

    def _begin(self, job: JobContext) -> None:
        span, inside = self._start(job)
        self._spans[job.token] = (span, context.attach(inside))

    def _end(self, job: JobContext, error: BaseException | None) -> None:
        if job.token not in self._spans:
            return
        span, token = self._spans[job.token]
        context.detach(token)
        outcome, errors = job.outcome, _errors(job.outcomes)
        if error is not None and (outcome is None or isinstance(outcome, Done)):
            errors = [self._describe(error)]  # another middleware raised it
        self._finish(span, job, job.outcomes, errors)

    def failed(self, job: JobContext, outcomes: Sequence[Outcome]) -> None:
        """Add the span of a run that could not end its own: its process crashed, or was ended on timeout."""
        if job.started and job.token not in self._spans:
            span, _ = self._start(job, job.started * 1000)
            self._finish(span, job, outcomes, _errors(outcomes))

    def forget(self, job: JobContext) -> None:
        """Forget a run that is over."""
        self._spans.pop(job.token, None)

    def _start(self, job: JobContext, at: int | None = None) -> tuple[Span, context.Context]:
        attributes = _attributes("process", job.queue, job.task)
        attributes["laneway.attempt"] = job.attempt
        if job.lane is not None:
            attributes["laneway.lane"] = job.lane
        if job.claim.collects:
            outside, linked = context.Context(), [_producer(headers) for headers in job.payload_headers]
            attributes["messaging.batch.message_count"] = sum(len(unit.payloads) for unit in job.claim.units)
        else:
            outside = propagate.extract(job.headers, context.Context())
            linked = [_span_context(outside)] if job.attempt > 1 else []
            attributes["messaging.message.id"] = job.id
        linked += [before for id_ in job.ids if (before := self._before.pop(id_, None)) is not None]
        links = [Link(one) for one in linked if one.is_valid]
        span = self._tracer.start_span(f"process {job.queue}", outside, SpanKind.CONSUMER, attributes, links, at)
        return span, trace.set_span_in_context(span, outside)

    def _finish(self, span: Span, job: JobContext, outcomes: Sequence[Outcome], errors: Sequence[ErrorInfo]) -> None:
        outcome = gravest(outcomes)
        if outcome is not None:
            span.set_attribute("laneway.outcome", outcome.name)
        if errors:
            _fail(span, errors)
        span.end()
        if isinstance(outcome, Retrying | Snoozed):
            self._before.update((id_, span.get_span_context()) for id_ in job.ids)
            while len(self._before) > REMEMBERED:
                self._before.popitem(last=False)


def _producer(headers: Mapping[str, str]) -> SpanContext:
    return _span_context(propagate.extract(headers, context.Context()))


def _span_context(of: context.Context) -> SpanContext:
    return trace.get_current_span(of).get_span_context()


def _errors(outcomes: Sequence[Outcome]) -> list[ErrorInfo]:
    """Return the errors in outcomes: those of lanes with the same error once."""
    return list(dict.fromkeys(outcome.error for outcome in outcomes if isinstance(outcome, Retrying | Dead)))


def _fail(span: Span, errors: Sequence[ErrorInfo]) -> str:
    """Give a span the status of an error, and an event for each; return the kind of the first.

    The texts are those that are stored with the job: `format_error` applies to them.
    """
    first = errors[0]
    for error in errors if span.is_recording() else ():
        stack = {"exception.stacktrace": error.traceback} if error.traceback else {}
        span.add_event("exception", {"exception.type": error.kind, "exception.message": error.message, **stack})
    span.set_attribute("error.type", first.kind)
    span.set_status(StatusCode.ERROR, f"{first.kind}: {first.message}")
    return first.kind


# -- measurements of runs ----------------------------------------------------------------------------------------


class _Measures:
    """Measurements of runs, taken by the worker, of isolated runs too."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Runs of jobs, and payloads in runs of collectors",
        )
        self._took = meter.create_histogram(
            "messaging.process.duration", "s", "How long runs took", explicit_bucket_boundaries_advisory=SHORT
        )
        self._waited = meter.create_histogram(
            "laneway.wait.duration", "s", "How long jobs waited from when they were due until they ran",
            explicit_bucket_boundaries_advisory=LONG,
        )  # fmt: skip

    def ended(self, event: RunEnded) -> None:
        """Measure a run."""
        job, outcome = event.job, gravest(event.outcomes)
        measured = _measured("process", job.queue, job.task)
        units = job.claim.units
        self._waited.record(max(event.started - min([unit.due for unit in units]), 0) / SECOND, measured)
        if outcome is not None:
            measured = {**measured, "laneway.outcome": outcome.name}
            if isinstance(outcome, Retrying | Dead):
                measured["error.type"] = outcome.error.kind
        self._took.record((event.finished - event.started) / SECOND, measured)
        self._consumed.add(sum([len(unit.payloads) or 1 for unit in units]), measured)
