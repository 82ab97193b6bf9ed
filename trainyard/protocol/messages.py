"""Messages from a rank to its supervisor: types, encoding, and parsing that trusts no field of a hostile rank."""

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from trainyard.protocol.json import json_number

MAX_TEXT = 64_000
MAX_SAID = 8000
MAX_NAME = 128
MAX_PATH = 4096
MAX_METRICS = 1000
MAX_FILES = 10_000
MAX_REASON = 64
MAX_NOTED = 50
MAX_NOTED_TEXT = 1000
MAX_STEP = 2**31 - 1
MAX_TOKENS = 2**62
REASON = re.compile(r"[A-Z][A-Z0-9_]*")
PHASES = ("TRAINING", "CHECKPOINTING", "EVALUATING", "EXPORTING")
STOPPED = ("pause", "cancel", "requeue")
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class BadMessage(ValueError):
    """A message whose fields do not match its type."""


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
class Section:
    """Work without steps begins; ``name`` None: it is over."""

    type: ClassVar[str] = "section"
    name: str | None
    max_seconds: float | None


@dataclass(frozen=True)
class PauseFailed:
    """The ranks continue although a pause was requested, because its checkpoint could not be saved."""

    type: ClassVar[str] = "pause_failed"
    message: str
    number: int | None = None  # of the pause: how many were given up before it; None: the latest one


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended; ``stopped`` is the stop command it followed, None when it ran to its end.

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


T = TypeVar("T")
Report = (
    Hello | Phase | Progress | MetricPoint | CheckpointReady | Remark | Section | PauseFailed | Result | Failure | Done
    | RankExit
)  # fmt: skip
Fields = Mapping[str, Any]


def fields_of(message: Any) -> dict[str, Any]:
    """The fields of a message or command as they are sent, without its type and rank."""
    sent = ((each, getattr(message, each.name)) for each in fields(message) if each.name != "rank")
    return {each.name: _sent(value) for each, value in sent if value or "sparse" not in each.metadata}


def _sent(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def parse(message: Fields) -> Report:
    """Parse and validate a message of a rank. Raises BadMessage, which names the field."""
    parser = _PARSERS.get(message["type"])
    if parser is None:
        raise BadMessage(f"unknown type {message['type']!r:.100}; known: {', '.join(sorted(_PARSERS))}")
    return parser(message)


def clean_text(value: object, limit: int = MAX_TEXT) -> str:
    """Text that any database accepts: valid Unicode, no NUL, bounded."""
    text = value if isinstance(value, str) else ""
    return text[:limit].encode("utf-8", "replace").decode().replace("\0", "�")


def _hello(message: Fields) -> Hello:
    can_checkpoint, dumps = message.get("can_checkpoint") is True, message.get("dumps") is True
    pid = _or(0, lambda: _whole(message, "pid", default=0))
    return Hello(rank=_rank(message), pid=pid, can_checkpoint=can_checkpoint, dumps=dumps)


def _phase(message: Fields) -> Phase:
    if message.get("phase") not in PHASES:
        raise BadMessage(f"phase must be one of {', '.join(PHASES)}")
    return Phase(message["phase"])


def _progress(message: Fields) -> Progress:
    total = message.get("total_steps")
    epochs = message.get("total_epochs")
    return Progress(
        step=_whole(message, "step"),
        total_steps=None if total is None else _whole(message, "total_steps"),
        epoch=_amount(message, "epoch"),
        total_epochs=None if epochs is None else _amount(message, "total_epochs"),
        tokens=_whole(message, "tokens", default=0, most=MAX_TOKENS),
    )


def _metric(message: Fields) -> MetricPoint:
    return MetricPoint(step=_whole(message, "step"), at=_time(message.get("at")), values=_numbers(message, "values"))


def _checkpoint(message: Fields) -> CheckpointReady:
    return CheckpointReady(
        step=_whole(message, "step"),
        epoch=_or(0.0, lambda: _amount(message, "epoch")),
        path=_path(message, "path"),
        metrics=_usable_numbers(message, "metrics"),
        kept=message.get("kept") is True,
    )


def _note(message: Fields) -> Remark:
    reason = clean_text(message.get("reason"), MAX_REASON)
    data = message.get("data")
    return Remark(
        reason=reason if REASON.fullmatch(reason) else "SCRIPT",
        message=clean_text(message.get("message"), MAX_SAID),
        data={
            clean_text(name, MAX_NAME): _plain(value)
            for name, value in itertools.islice(data.items() if isinstance(data, dict) else (), MAX_NOTED)
        },
    )


def _plain(value: Any) -> Any:
    """A value as the history can show it: text, a JSON number, or a few numbers."""
    if isinstance(value, list):
        return [_plain(each) for each in value[:MAX_NOTED] if isinstance(each, int | float)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return json_number(value) if abs(value) <= MAX_TOKENS or isinstance(value, float) else str(value)[:MAX_NAME]
    return clean_text(value, MAX_NOTED_TEXT)


def _section(message: Fields) -> Section:
    name, most = message.get("name"), message.get("max_seconds")
    return Section(
        name=None if name is None else clean_text(name, MAX_NAME),
        max_seconds=None if most is None else _amount(message, "max_seconds"),
    )


def _result(message: Fields) -> Result:
    stopped = message.get("stopped")
    if stopped is not None and stopped not in STOPPED:
        raise BadMessage(f"stopped must be null or one of {', '.join(STOPPED)}")
    return Result(
        stopped=stopped,
        step=_or(None, lambda: _whole(message, "step")),
        tokens=_or(0, lambda: _whole(message, "tokens", default=0, most=MAX_TOKENS)),
        final_metrics=_usable_numbers(message, "final_metrics"),
        weight_files=_weight_files(message.get("weight_files")),
    )


def _weight_files(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MAX_FILES or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(dict.fromkeys(clean_text(name, MAX_PATH) for name in names))


def _error(message: Fields) -> Failure:
    return Failure(
        rank=_rank(message),
        error_type=clean_text(message.get("error_type"), 32),
        message=clean_text(message.get("message"), MAX_SAID),
        stack=clean_text(message.get("stack")),
    )


def _rank_exit(message: Fields) -> RankExit:
    killed_by = message.get("signal")
    return RankExit(
        rank=_rank(message),
        exit_code=_whole(message, "exit_code"),
        signal=clean_text(killed_by, 32) if isinstance(killed_by, str) else None,
        at=_or(None, lambda: _number(message.get("at"))),
    )


def _rank(message: Fields) -> int:
    return _whole(message, "rank", default=0)


def _or(otherwise: T, read: Callable[[], T]) -> T:
    """An optional field: a wrong one counts as missing."""
    try:
        return read()
    except BadMessage:
        return otherwise


def _path(message: Fields, name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str) or not value or clean_text(value, MAX_PATH) != value:
        raise BadMessage(f"{name} must be a path of 1 to {MAX_PATH} characters")
    return value


def _whole(message: Fields, name: str, *, default: int | None = None, most: int = MAX_STEP) -> int:
    value = message.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 5.0, 1e6: results of divisions in scripts
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadMessage(f"{name} must be a whole number from 0 to {most}, not {value!r:.100}")
    return value


def _amount(message: Fields, name: str) -> float:
    value = _number(message.get(name) or 0)
    if not 0 <= value <= MAX_STEP:  # also refuses NaN
        raise BadMessage(f"{name} must be a finite number of at least 0")
    return value


def _number(value: Any) -> float:
    if isinstance(value, str) and value in SPECIAL:
        return SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadMessage(f"not a number: {value!r:.100}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _numbers(message: Fields, name: str) -> dict[str, float]:
    values = message.get(name)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadMessage(f"{name} must be an object of numbers")
    return {clean_text(key, MAX_NAME): _number(value) for key, value in values.items()}


def _usable_numbers(message: Fields, name: str) -> dict[str, float]:
    """The first MAX_METRICS values that are numbers; others are skipped, because they are only shown."""
    values = message.get(name)
    found: dict[str, float] = {}
    for key, value in values.items() if isinstance(values, dict) else ():
        if len(found) == MAX_METRICS:
            break
        with contextlib.suppress(BadMessage):
            found[clean_text(key, MAX_NAME)] = _number(value)
    return found


def _pause_failed(message: Fields) -> PauseFailed:
    number = None if message.get("number") is None else _whole(message, "number")
    return PauseFailed(clean_text(message.get("message"), MAX_SAID), number=number)


def _time(value: Any) -> datetime:
    """The sender's time; the current time when it is missing or invalid, because it is only shown."""
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return datetime.now(UTC)


_PARSERS: dict[str, Callable[[Fields], Report]] = {
    Hello.type: _hello,
    Phase.type: _phase,
    Progress.type: _progress,
    MetricPoint.type: _metric,
    CheckpointReady.type: _checkpoint,
    Remark.type: _note,
    Section.type: _section,
    PauseFailed.type: _pause_failed,
    Result.type: _result,
    Failure.type: _error,
    Done.type: lambda message: Done(rank=_rank(message)),
    RankExit.type: _rank_exit,
}
