"""Settings of how finished models are carried to where their jobs wish them."""

from dataclasses import dataclass

from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    stalled_seconds: float = setting(
        300.0, "an upload of a finished model that moves nothing for this long is given up"
    )
    retry_seconds: float = setting(1.0, "pause before a failed one is tried again; four times as long after each try")
