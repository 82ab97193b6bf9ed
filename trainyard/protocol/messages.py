"""Messages from a rank to its supervisor: types, limits and encoding."""

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Protocol

MAX_TEXT = 64_000
MAX_MESSAGE = 8000
MAX_NAME = 128
MAX_PATH = 4096
MAX_METRICS = 1000
MAX_FILES = 10_000
MAX_REASON = 64
MAX_NOTED = 50
MAX_NOTED_TEXT = 1000
MAX_STEP = 2**31 - 1
MAX_TOKENS = 2**62
MAX_BODY = 1 << 20  # bytes of a request to a model, as JSON
REASON = re.compile(r"[A-Z][A-Z0-9_]*")
PHASES = ("TRAINING", "CHECKPOINTING", "EVALUATING", "SERVING", "EXPORTING")
ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # also that of its directory
HALT = "halt"  # the job's document, not a request, named the step
STOPPED = ("pause", "cancel", "requeue", "drain", HALT)


@dataclass(frozen=True, kw_only=True)
class Hello:
    """First message of a rank; a later one corrects ``can_checkpoint``."""

    type: ClassVar[str] = "hello"
    rank: int = 0
    pid: int = 0
    can_checkpoint: bool
    dumps: bool = False  # it writes its stacks on a WriteStacks command, and on SIGUSR2


@dataclass(frozen=True)
class Phase:
    type: ClassVar[str] = "phase"
    phase: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the run is; `step` counts finished optimizer steps."""

    type: ClassVar[str] = "progress"
    step: int
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class MetricPoint:
    type: ClassVar[str] = "metric"
    step: int
    at: datetime
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CheckpointReady:
    """A complete checkpoint directory that the supervisor may take over."""

    type: ClassVar[str] = "checkpoint"
    step: int
    epoch: float
    path: str
    metrics: Mapping[str, float]
    kept: bool = field(default=False, metadata={"sparse": True})  # found among a script's files, not reported by it


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A line for the job's history."""

    type: ClassVar[str] = "note"
    reason: str
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SectionMessage:
    """Work without steps begins; ``name`` None: it is over."""

    type: ClassVar[str] = "section"
    name: str | None
    max_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class FetchAdapter:
    """A replica asks for an adapter that a job of its project has trained; answered by AdapterReady or AdapterRefused.

    ``checkpoint_id`` None: the job's result.
    """

    type: ClassVar[str] = "fetch_adapter"
    name: str  # by which it is answered
    job_id: str
    checkpoint_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class AskModel:
    """A rank asks a model that its job's document names; answered by ModelAnswered, to the rank that asked."""

    type: ClassVar[str] = "ask_model"
    number: int  # by which it is answered
    path: str  # of the gateway
    body: str  # JSON in ASCII


@dataclass(frozen=True)
class PauseFailed:
    """The ranks continue although a pause was requested, because its checkpoint could not be saved."""

    type: ClassVar[str] = "pause_failed"
    message: str
    number: int | None = None  # of the pause: how many were given up before it; None: the latest one


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended; ``stopped`` is the stop command it followed, or HALT, None when it ran to its end.

    All other fields may be missing when parsed: hours of work must not depend on them.
    """

    type: ClassVar[str] = "result"
    stopped: str | None = None
    step: int | None = 0
    tokens: int = 0
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    output: str = ""  # shown by local runs; the supervisor knows the directory and does not parse it
    weight_files: tuple[str, ...] = ()  # empty: look for them


@dataclass(frozen=True, kw_only=True)
class Failure:
    type: ClassVar[str] = "error"
    rank: int = 0
    error_type: str
    message: str
    stack: str


@dataclass(frozen=True, kw_only=True)
class Done:
    """A rank other than 0 has finished."""

    type: ClassVar[str] = "done"
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """Sent by the rank agent when a rank's process has ended."""

    type: ClassVar[str] = "rank_exit"
    rank: int
    exit_code: int
    signal: str | None
    at: float | None = None  # on the machine's monotonic clock
    follows: bool = field(default=False, metadata={"sparse": True})  # its launcher ended it: another rank had failed


Report = (
    Hello
    | Phase
    | Progress
    | MetricPoint
    | CheckpointReady
    | Remark
    | SectionMessage
    | FetchAdapter
    | AskModel
    | PauseFailed
    | Result
    | Failure
    | Done
    | RankExit
)
Fields = Mapping[str, Any]


class AnyDataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def fields_of(message: AnyDataclass) -> dict[str, Any]:
    """The fields of a message or command as they are sent, without its type and rank."""
    sent = ((each, getattr(message, each.name)) for each in fields(message) if each.name != "rank")
    return {each.name: _sent(value) for each, value in sent if value or "sparse" not in each.metadata}


def _sent(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def clean_text(value: object, limit: int = MAX_TEXT) -> str:
    """Text that any database accepts: valid Unicode, no NUL, bounded."""
    text = value if isinstance(value, str) else ""
    return text[:limit].encode("utf-8", "replace").decode().replace("\0", "�")
