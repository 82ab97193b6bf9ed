"""Settings of gateways and services: who may ask models how much, and where the API finds a gateway."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    host: str = setting("127.0.0.1", "address a gateway listens on")
    port: int = setting(8001, "port a gateway listens on", rules.port)
    url: str = setting(
        "",
        "URL at which the API and nodes reach a gateway, to hand requests to models on to it, of clients and of jobs; "
        "empty: those are refused (`trainyard up` sets its own)",
        rules.http_url,
    )
    max_body_bytes: int = setting(8 << 20, "largest body of a request to a model", rules.at_least_one)
    max_requests: int = setting(
        1000, "requests that one gateway has open at a time; more are refused with 503", rules.at_least_one
    )
    threads: int = setting(8, "database threads of a gateway", rules.at_least_one)
    silence_seconds: float = setting(
        900.0,
        "after which the API gives up a gateway that sends nothing; more than `cold_start_seconds` of services",
        rules.positive_seconds,
    )
    drain_seconds: float = setting(30.0, "how long a gateway that is stopped lets answers end")
    requests_per_minute: int = setting(
        0, "requests to models per minute of one key, in one gateway; 0: no limit", rules.not_negative
    )
    tokens_per_minute: int = setting(
        0, "tokens per minute of one key, prompts and answers together, in one gateway; 0: no limit", rules.not_negative
    )


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    auto: bool = setting(
        True, "the first request for a model without a service makes one, with replicas from 0 to 1; off: it is refused"
    )
