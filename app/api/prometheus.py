"""``GET /metrics`` for Prometheus: jobs and cluster from the database, requests from the server processes' counters."""

import math
import time
from collections.abc import Iterable
from pathlib import Path

from flask import Blueprint, Flask, Response, current_app, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.http.context import caller, plane
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.operations import measurements
from app.services.operations.measurements import Measurement
from app.services.operations.prometheus import of_cluster, of_jobs

blueprint = Blueprint("prometheus", __name__)
PREFIX = "trainyard_"
EXTENSION = "trainyard.request_metrics"
# Clients choose the method; every unknown one would create a new time series.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD, NO_ROUTE = "OTHER", "none"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """Request metrics of this process, or of all processes that share the counter files in ``directory``."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{PREFIX}http_requests", "Requests answered", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            f"{PREFIX}http_request_duration_seconds",
            "Time until the response, for streams until the first byte",
            ("method", "route"),
            buckets=SECONDS,
            registry=self._registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else OTHER_METHOD
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def families(self) -> Iterable[Metric]:
        if self._directory is None:
            return self._registry.collect()
        together = MultiProcessCollector(None, path=str(self._directory))  # type: ignore[no-untyped-call] # it has no types
        return list(together.collect())  # type: ignore[no-untyped-call] # the same


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def register(app: Flask, *, directory: Path | None) -> None:
    """Register first, so that requests rejected by other handlers are counted as well."""
    app.extensions[EXTENSION] = RequestMetrics(directory)
    app.before_request(_begin)
    app.after_request(_end)


@blueprint.get("/metrics")
@operation("Get metrics in the Prometheus text format", permission=Permission.VIEW, media="text")
def prometheus() -> Response:
    who = caller()
    with plane().db.read() as session:
        found = [*of_jobs(session, who), *of_cluster(session, who)]
    families = [_family(measurement) for measurement in found]
    if who.project is None and who.may(Permission.CLUSTER_ADMIN):
        families += current_app.extensions[EXTENSION].families()
    encode, media = choose_encoder(request.headers.get("Accept", ""))
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return Response(encode(registry), content_type=media)


def _begin() -> None:
    g.began_at = time.perf_counter()


def _end(response: Response) -> Response:
    route = request.url_rule.rule if request.url_rule is not None else NO_ROUTE
    seconds = time.perf_counter() - g.began_at
    current_app.extensions[EXTENSION].count(request.method, route, response.status_code, seconds)
    return response


def _family(measurement: Measurement) -> Metric:
    name = f"{PREFIX}{measurement.name}"
    if isinstance(measurement, measurements.Histogram):
        histogram = HistogramMetricFamily(name, measurement.meaning, labels=measurement.labels)
        for labels, up_to, total in measurement.values:
            buckets = [("+Inf" if math.isinf(bound) else str(bound), float(count)) for bound, count in up_to]
            histogram.add_metric(labels, buckets, sum_value=total)
        return histogram
    gauge = GaugeMetricFamily(name, measurement.meaning, labels=measurement.labels)
    for labels, value in measurement.values:
        gauge.add_metric(labels, value)
    return gauge
