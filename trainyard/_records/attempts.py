"""Types of the server's answers about attempts of a job."""

from typing import NotRequired, TypedDict


class PlannedInstance(TypedDict):
    role: str
    index: int
    node: str
    devices: list[int]


class Instance(TypedDict):
    """An instance of a role in an attempt; ``exit_code`` once it has ended."""

    role: str
    index: int
    node: str
    part: int
    devices: list[int]
    first_rank: int
    ranks: int
    exit_code: NotRequired[int | None]


class Attempt(TypedDict):
    number: int
    node_names: list[str]
    device_indices: list[list[int]]
    device_share: float
    instances: list[Instance] | None  # of a job with roles
    started_at: str | None
    trained_at: str | None
    ended_at: str | None
    start_type: str
    end_reason: str | None
    end_related_task: str | None
    end_recover: str | None
    start_step: int
    end_step: int | None
    exit_code: int | None
    cause: str | None
    policy: str | None
    recover_before_downgrade: str | None
    lost_steps: int | None
    detect_seconds: float | None
    recover_seconds: float | None
