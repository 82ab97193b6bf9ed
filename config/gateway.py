"""Settings of gateways and services: who may ask models how much, and where the API finds a gateway."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


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
        0, "requests to models per minute of each key that has no limit of its own; 0: no limit", rules.not_negative
    )
    tokens_per_minute: int = setting(
        0,
        "tokens per minute of each key that has no limit of its own, prompts and answers together; 0: no limit",
        rules.not_negative,
    )
    sessions_url: str = setting(
        "",
        "URL at which people reach a gateway for shells, commands and forwarded ports; empty: the address by which "
        "they reach the API, whose proxy sends `/v1/sessions/` to the gateway (`trainyard up` sets its own)",
        rules.http_url,
    )
    ports_url: str = setting(
        "",
        "URL of a host of its own, where browsers reach ports of jobs, so that pages of jobs share no cookies with the "
        "dashboard; with `*.` before the host each port has an origin of its own; empty: no port is served "
        "(`trainyard up` sets `http://jobs.localhost`)",
        rules.host_url,
    )
    port_seconds: int = setting(
        8 * 3600, "how long the address of a port that a person was given may be used", rules.at_least_one
    )
    most_port_body_bytes: int = setting(
        1 << 30, "largest body of a request to a port of a job; bodies are passed on as they come", rules.at_least_one
    )
    session_idle_seconds: int = setting(
        3600,
        "after which a shell or a forwarded connection on which nothing comes or goes is ended; a command without a "
        "terminal may be silent for longer",
        rules.at_least_one,
    )
    most_sessions: int = setting(
        500, "shells, commands and connections to ports that one gateway has open at a time", rules.at_least_one
    )


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    auto: bool = setting(
        True,
        "the first request for a model without a service makes one, with replicas from 0 to 1; off: it is refused. "
        "Projects may say otherwise (`auto_services`)",
    )
