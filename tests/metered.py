"""What bucketlake counts, as OpenTelemetry's own reader in memory gets it."""

from __future__ import annotations

from functools import cache

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


@cache
def reader_of_metrics() -> InMemoryMetricReader:
    """Return the reader of this process: a provider can be set once."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


def number(name: str, **facts: str) -> float:
    """Return what was counted so far under a name, with some facts."""
    wanted = {f"bucketlake.{key}": fact for key, fact in facts.items()}
    data = reader_of_metrics().get_metrics_data()
    found = [
        point
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == f"bucketlake.{name}"
        for point in metric.data.data_points
        if wanted.items() <= dict(point.attributes or {}).items()
    ]
    return sum(float(getattr(point, "value", 0) or getattr(point, "count", 0)) for point in found)
