"""Settings of sending metrics to tracking services."""

from dataclasses import dataclass

from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    allow: tuple[str, ...] = setting((), "comma-separated private hosts or networks that `tracking` may name")
    flush_seconds: float = setting(5.0, "time between two deliveries of a job's new metrics to a tracking service")
    timeout_seconds: float = setting(10.0, "timeout of one request to a tracking service")
    end_seconds: float = setting(10.0, "how long the end of an attempt waits for the last delivery")
