"""Parses messages of a rank, and trusts no field of a hostile one."""

import contextlib
import itertools
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from trainyard.protocol.json import JSON, json_number
from trainyard.protocol.messages import (
    ADAPTER_NAME,
    MAX_BODY,
    MAX_FILES,
    MAX_MESSAGE,
    MAX_METRICS,
    MAX_NAME,
    MAX_NOTED,
    MAX_NOTED_TEXT,
    MAX_PATH,
    MAX_REASON,
    MAX_STEP,
    MAX_TOKENS,
    PHASES,
    REASON,
    STOPPED,
    AskModel,
    CheckpointReady,
    Done,
    Failure,
    FetchAdapter,
    Fields,
    Hello,
    MetricPoint,
    PauseFailed,
    Phase,
    Progress,
    RankExit,
    Remark,
    Report,
    Result,
    SectionMessage,
    clean_text,
)

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class BadMessage(ValueError):
    """A message whose fields do not match its type."""


T = TypeVar("T")


def parse(message: Fields) -> Report:
    """Parse and validate a message of a rank. Raises BadMessage, which names the field."""
    parser = _PARSERS.get(message["type"])
    if parser is None:
        raise BadMessage(f"unknown type {message['type']!r:.100}; known: {', '.join(sorted(_PARSERS))}")
    return parser(message)


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
        message=clean_text(message.get("message"), MAX_MESSAGE),
        data={
            clean_text(name, MAX_NAME): _plain(value)
            for name, value in itertools.islice(data.items() if isinstance(data, dict) else (), MAX_NOTED)
        },
    )


def _plain(value: JSON) -> JSON:
    """A value as the history can show it: text, a JSON number, or a few numbers."""
    if isinstance(value, list):
        return [_plain(each) for each in value[:MAX_NOTED] if isinstance(each, int | float)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return json_number(value) if abs(value) <= MAX_TOKENS or isinstance(value, float) else str(value)[:MAX_NAME]
    return clean_text(value, MAX_NOTED_TEXT)


def _section(message: Fields) -> SectionMessage:
    name, most = message.get("name"), message.get("max_seconds")
    return SectionMessage(
        name=None if name is None else clean_text(name, MAX_NAME),
        max_seconds=None if most is None else _amount(message, "max_seconds"),
    )


def _fetch_adapter(message: Fields) -> FetchAdapter:
    name, checkpoint_id = message.get("name"), message.get("checkpoint_id")
    if not isinstance(name, str) or not ADAPTER_NAME.fullmatch(name):
        raise BadMessage("name must be of 1 to 128 letters, digits, dots, hyphens and underscores")
    return FetchAdapter(
        name=name,
        job_id=_identifier(message, "job_id"),
        checkpoint_id=None if checkpoint_id is None else _identifier(message, "checkpoint_id"),
    )


def _ask_model(message: Fields) -> AskModel:
    body = message.get("body")
    if not isinstance(body, str) or not body or clean_text(body, MAX_BODY) != body:
        raise BadMessage(f"body must be a JSON text of 1 to {MAX_BODY} bytes")
    return AskModel(number=_whole(message, "number"), path=_path(message, "path"), body=body)


def _identifier(message: Fields, name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str) or not value or clean_text(value, MAX_NAME) != value:
        raise BadMessage(f"{name} must be an id of 1 to {MAX_NAME} characters")
    return value


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


def _weight_files(names: JSON) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MAX_FILES or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(dict.fromkeys(clean_text(name, MAX_PATH) for name in names))


def _error(message: Fields) -> Failure:
    return Failure(
        rank=_rank(message),
        error_type=clean_text(message.get("error_type"), 32),
        message=clean_text(message.get("message"), MAX_MESSAGE),
        stack=clean_text(message.get("stack")),
    )


def _rank_exit(message: Fields) -> RankExit:
    killed_by = message.get("signal")
    return RankExit(
        rank=_rank(message),
        exit_code=_whole(message, "exit_code"),
        signal=clean_text(killed_by, 32) if isinstance(killed_by, str) else None,
        at=_or(None, lambda: _number(message.get("at"))),
        follows=message.get("follows") is True,
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


def _number(value: JSON) -> float:
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
    return PauseFailed(clean_text(message.get("message"), MAX_MESSAGE), number=number)


def _time(value: JSON) -> datetime:
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
    SectionMessage.type: _section,
    FetchAdapter.type: _fetch_adapter,
    AskModel.type: _ask_model,
    PauseFailed.type: _pause_failed,
    Result.type: _result,
    Failure.type: _error,
    Done.type: lambda message: Done(rank=_rank(message)),
    RankExit.type: _rank_exit,
}
