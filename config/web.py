"""Settings of the dashboard in the browser."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    enabled: bool = setting(True, "the API serves a dashboard for browsers at `/ui`")
    session_seconds: float = setting(43_200.0, "a sign-in ends after this time")
    idle_seconds: float = setting(7_200.0, "a sign-in ends after this time without a page or an action")
    url: str = setting(
        "",
        "address at which people reach the dashboard, without `/ui`, for links to it from a page of a gateway; empty: "
        "it has none (`trainyard up` sets its own)",
        rules.http_url,
    )
    max_streams: int = setting(
        0,
        "tabs per process that receive changes as events; further ones poll; 0: an eighth of `TRAINYARD_API_THREADS`",
        rules.not_negative,
    )
