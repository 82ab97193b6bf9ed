"""Types of the server's answers about services, part of trainyard.records."""

from typing import Any, TypedDict

SERVICE_TERMINAL = frozenset({"ENDED"})


class CreatedService(TypedDict):
    service_id: str
    name: str
    status: str
    message: str
    warnings: list[str]


class Service(TypedDict):
    """A service. ``replicas`` is how many are asked for; ``answering`` and ``starting`` count those that there are.

    ``pending_reason`` says why fewer replicas answer than are ``wanted``; ``failures`` are those of replicas since one
    has answered. ``is_automatic``: the first request for its model has made it. Of ``in_flight`` and ``waiting``
    requests, the latter are held until a replica answers. ``first_token_seconds``: within which 95 % of the streams of
    the last five minutes had their first token, None without streams.
    """

    service_id: str
    name: str
    project: str
    created_by: str
    created_by_name: str
    is_automatic: bool
    model: dict[str, Any]
    task: str
    adapters: dict[str, Any]
    replicas: dict[str, int]
    engine: str
    limits: dict[str, int | None]
    defaults: dict[str, float]
    log: str
    resource_config: dict[str, Any]
    scheduling_config: dict[str, Any]
    environment: dict[str, str]
    status: str
    pending_reason: str
    revision: int
    wanted: int
    answering: int
    starting: int
    in_flight: int
    waiting: int
    tokens_per_second: float
    first_token_seconds: float | None
    adapters_loaded: int
    failures: int
    requested_at: str | None
    created_at: str
    updated_at: str
    ended_at: str | None
    version: int


class Replica(TypedDict):
    """A copy of a service: the job ``job_id``. It ``answers`` while a probe has succeeded and its lease is held."""

    job_id: str
    number: int
    revision: int
    status: str
    pending_reason: str
    is_draining: bool
    answers: bool
    answers_since: str | None
    node_names: list[str]
    latest_metrics: dict[str, float | str]
    error_type: str | None
    error_message: str | None
    created_at: str
    finished_at: str | None


class ServiceEvent(TypedDict):
    id: str
    at: str
    type: str
    actor: str
    message: str
    data: dict[str, Any]


class ServedLoad(TypedDict):
    in_flight: int
    waiting: int
    answering: int


class ServiceMetrics(TypedDict):
    """``series`` has ``[step, at, value]`` of each point, by the number of the replica and the name of the metric."""

    now: ServedLoad
    replicas: dict[str, dict[str, list[list[Any]]]]


class Usage(TypedDict):
    """Answered requests; what the list is not grouped by is None."""

    day: str | None
    key_id: str | None
    model: str | None
    project: str
    requests: int
    failures: int
    prompt_tokens: int
    completion_tokens: int
