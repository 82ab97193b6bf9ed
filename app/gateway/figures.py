"""What a gateway counts about itself, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.domain.serving.first_tokens import BOUNDS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)


class GatewayFigures:
    """Of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "trainyard_gateway_requests",
            "Requests by path and status; 499: hung up",
            ["path", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "trainyard_gateway_request_seconds",
            "From letting a request in to the end of its answer",
            ["path"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._first_token = Histogram(
            "trainyard_gateway_first_token_seconds",
            "From letting a request in to the first token of its streamed answer",
            ["path"],
            buckets=BOUNDS,
            registry=self._registry,
        )

    def watch(self, held: Callable[[], tuple[int, int]]) -> None:
        """``held`` gives the requests in flight and those that wait."""
        in_flight = Gauge(
            "trainyard_gateway_in_flight", "Requests that replicas are answering", registry=self._registry
        )
        in_flight.set_function(lambda: held()[0])
        waiting = Gauge("trainyard_gateway_waiting", "Requests that wait for a replica", registry=self._registry)
        waiting.set_function(lambda: held()[1])

    def count(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def first_token(self, path: str, seconds: float) -> None:
        self._first_token.labels(path).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
