"""What the rank agent and the supervisor tell each other about instances of roles.

Upward an instance that started, ended, or was started again, and that all but the sidecars have ended here; downward
the roles that have started everywhere, and the release: nothing is left to do but to stop the sidecars.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from trainyard.protocol.channel import Message


@dataclass(frozen=True, kw_only=True)
class InstanceStarted:
    type: ClassVar[str] = "instance_started"
    role: str
    index: int


@dataclass(frozen=True, kw_only=True)
class InstanceEnded:
    """``exit_code``: of its rank that failed first, 0 if none did."""

    type: ClassVar[str] = "instance_ended"
    role: str
    index: int
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class TaskRestarted:
    """An instance was started again, because this rank of it had ended so."""

    type: ClassVar[str] = "task_restarted"
    role: str
    index: int
    rank: int
    exit_code: int
    restarts: int


@dataclass(frozen=True)
class WorkEnded:
    """The instances of this node that are no sidecars have all ended with 0, or it has none."""

    type: ClassVar[str] = "work_ended"


RoleReport = InstanceStarted | InstanceEnded | TaskRestarted | WorkEnded
_REPORTS: Mapping[str, type[RoleReport]] = {
    each.type: each for each in (InstanceStarted, InstanceEnded, TaskRestarted, WorkEnded)
}

ROLES_STARTED = "roles_started"  # with `roles`
RELEASE = "release_roles"  # with `grace_seconds`


def to_message(report: RoleReport) -> Message:
    return {"type": report.type, **asdict(report)}


def parse(message: Message) -> RoleReport | None:
    """None for a message about something else. Raises ValueError for fields that do not match."""
    kind = _REPORTS.get(message["type"])
    if kind is None:
        return None
    fields: dict[str, Any] = {name: value for name, value in message.items() if name != "type"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"{message['type']}: {error}") from error
