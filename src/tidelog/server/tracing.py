"""Traces of requests with OpenTelemetry (`tracing.endpoint`): one span per request, from dispatch to its response.

Without the setting nothing of OpenTelemetry is imported, and requests do not pass here.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidelog.config.broker import BrokerSettings
from tidelog.protocol.structs import Response
from tidelog.runtime.deferred import observed

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    from tidelog.server.connection import Connection
    from tidelog.server.dispatch import Outcome, RequestContext, Route

SETTING = "tracing.endpoint"
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
SERVICE = "tidelog"
EXPORT_TIMEOUT_S = 5.0
"""For one batch of spans; a collector that does not answer delays the end of the process by this time at most."""

Started = tuple["Route", "RequestContext", "Outcome"]


class TracingUnavailable(OSError):
    """Traces cannot be sent. The message is one sentence for the operator."""


class Tracing:
    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._provider = provider
        self._tracer: Tracer = provider.get_tracer(SERVICE)
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    def start(
        self,
        start: Callable[[memoryview, "Connection"], Started],
        frame: memoryview,
        connection: "Connection",
    ) -> Started:
        """Start a request within a span, which ends with its response, its failure or its connection."""
        size = len(frame)
        span = self._tracer.start_span("request", kind=self._kind, record_exception=False)
        try:
            route, context, outcome = start(frame, connection)
        except Exception as error:
            self._fail(span, error)
            raise
        span.update_name(route.name)
        if span.is_recording():
            span.set_attributes(_attributes(route, context, size))

        def on_response(_: Response | None) -> None:
            span.end()

        def on_abandoned() -> None:
            span.set_attribute("kafka.connection_closed", True)
            span.end()

        return route, context, observed(outcome, on_response, partial(self._fail, span), on_abandoned)

    def _fail(self, span: "Span", error: Exception) -> None:
        span.record_exception(error)
        span.set_status(self._failed)
        span.end()

    def close(self) -> None:
        """Send what is left, for EXPORT_TIMEOUT_S at most."""
        self._provider.shutdown()


def _attributes(route: "Route", context: "RequestContext", size: int) -> dict[str, str | int]:
    session = context.session
    return {
        "messaging.system": "kafka",
        "messaging.client.id": context.client_id or "",
        "client.address": session.host,
        "kafka.listener": session.listener,
        "kafka.api_key": route.api_key,
        "kafka.api_version": route.version,
        "kafka.correlation_id": context.correlation_id,
        "kafka.request_bytes": size,
    }


def open_tracing(settings: BrokerSettings) -> Tracing | None:
    """None unless `tracing.endpoint` is set. Raises TracingUnavailable."""
    endpoint = settings.tracing_endpoint
    if not endpoint:
        return None
    if not endpoint.startswith(("http://", "https://")):
        raise TracingUnavailable(f"{SETTING}: {endpoint} is not a URL such as http://127.0.0.1:4318/v1/traces")
    if not _is_installed():
        raise TracingUnavailable(f"{SETTING} needs OpenTelemetry: `pip install 'tidelog[tracing]'` adds it")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.instance.id": str(settings.configured_broker_id)})
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):  # OTEL_SERVICE_NAME is not set
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S)))
    return Tracing(provider)


def _is_installed() -> bool:
    try:
        return find_spec(EXPORTER) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
