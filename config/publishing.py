"""Settings for publishing finished models to the job's destination."""

from dataclasses import dataclass

from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    stalled_seconds: float = setting(300.0, "an upload of a finished model without progress for this long is aborted")
    retry_seconds: float = setting(1.0, "pause before a failed upload is retried; four times as long after each try")
