"""Validation of a batch: its file is inspected by others, then each request is checked, a slice in each step."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from app.domain.batches.documents import job_document
from app.domain.batches.limits import LONGEST_MODEL, MOST_BYTES, MOST_MODELS, MOST_PROBLEMS
from app.domain.batches.problems import Problem, of_inspection, problem
from app.domain.batches.states import BatchState
from app.domain.errors import Conflict, InvalidRequest, LimitExceeded, NamedModelNotFound, NotFound, Unauthenticated
from app.domain.files.inspection import shown
from app.domain.files.lines import BadLine, Line, record_of
from app.domain.files.purposes import ERROR, UPLOADED_STATUS
from app.models import Batch, File
from app.models.base import utc_now
from app.services.batches import models, rows
from app.services.batches.creation import PARTS
from app.services.batches.reading import LineReader, Reading
from app.services.inference import submission
from app.services.inference.submission import NewInference
from app.services.requests.control_plane import ControlPlane

SLICE_SECONDS = 1.0
MODEL = "body.model"
# What is wrong with a body for an endpoint: (param, message, code) of each problem.
BodyCheck = Callable[[str, Mapping[str, Any]], Sequence[tuple[str, str, str]]]


@dataclass
class _Slice:
    """What is known after some of the lines. ``models``: model → number of its requests."""

    checked: int
    models: dict[str, int]
    problems: list[Problem]
    is_last: bool = False
    refused: set[str] = field(default_factory=set)  # models, as they are shown

    @property
    def is_full(self) -> bool:
        return len(self.problems) >= MOST_PROBLEMS


def advance(plane: ControlPlane, batch: Batch, check: BodyCheck, keep_on: Callable[[], bool], reading: Reading) -> bool:
    """Check the next requests; whether there is more to do at once. Raises StepInterrupted when ``keep_on`` says no."""
    with plane.db.read() as session:
        file = session.get(File, batch.input_file_id)
    if file is None:
        _fail(plane, batch, [problem("file_not_found", f"{batch.input_file_id} is not there any more")])
        return False
    if file.status == UPLOADED_STATUS:
        rows.wait(plane, batch, f"its file {file.id} is being inspected")
        return False
    if file.status == ERROR:
        _fail(plane, batch, map(of_inspection, file.status_details.split("\n")))
        return False
    try:
        opened = reading.of(plane, batch, keep_on)
        if opened is not None:
            found = _checked(plane, batch, opened, check)
            _record(plane, batch, found)
            if found.is_last:
                reading.close(batch.id)
    except BaseException:
        reading.close(batch.id)  # it is not where the row says, or can't be read on
        raise
    return True


def _checked(plane: ControlPlane, batch: Batch, opened: LineReader, check: BodyCheck) -> _Slice:
    found = _Slice(batch.checked_lines, dict(batch.models), list(batch.problems))
    found.refused = {each["model"] for each in found.problems if "model" in each}
    ends_at = time.monotonic() + SLICE_SECONDS
    while not found.is_full and (line := opened.read()) is not None:
        found.checked = opened.lines_read
        if opened.bytes_read > MOST_BYTES:
            message = f"the requests are more than {MOST_BYTES:,} bytes, unpacked; divide them among several batches"
            found.problems.append(problem("file_too_large", message))
            break
        found.problems += islice(_of_line(plane, batch, found, line, check), MOST_PROBLEMS - len(found.problems))
        if time.monotonic() > ends_at:
            return found
    found.is_last = True
    return found


def _of_line(plane: ControlPlane, batch: Batch, found: _Slice, line: Line, check: BodyCheck) -> Iterator[Problem]:
    try:
        record = record_of(line.content)
    except BadLine as error:
        yield problem("invalid_json_line", str(error), line=line.number)
        return
    if record.get("url") != batch.endpoint:
        message = f"must be the endpoint of the batch, {batch.endpoint}"
        yield problem("invalid_url", message, param="url", line=line.number)
        return
    body, is_refused = record["body"], False
    for param, message, code in check(batch.endpoint, body):
        is_refused = is_refused or param == MODEL
        yield problem(code, message, param=param, line=line.number)
    if not is_refused:
        yield from _of_model(plane, batch, found, body["model"], line.number)


def _of_model(plane: ControlPlane, batch: Batch, found: _Slice, name: str, line: int) -> Iterator[Problem]:
    """Counts the request as one of its model, or says once why there is no such model."""
    if shown(name) in found.refused:
        return
    if name not in found.models:
        refused = _refused_model(plane, batch, name, line, found)
        if refused is not None:
            found.refused.add(shown(name))
            yield {**refused, "model": shown(name)}
            return
    found.models[name] = found.models.get(name, 0) + 1


def _refused_model(plane: ControlPlane, batch: Batch, name: str, line: int, found: _Slice) -> Problem | None:
    """Why the model's job would be refused; None: it would not be."""
    if len(name) > LONGEST_MODEL or not name.isprintable():
        return problem("model_not_found", f"names no model: {name[:64]}", param=MODEL, line=line)
    if len(found.models) >= MOST_MODELS:
        return problem("too_many_models", f"a batch names at most {MOST_MODELS} models", param=MODEL, line=line)
    try:
        plan(plane, batch, name)
    except (LimitExceeded, Unauthenticated):
        return None  # the submission of its jobs finds out
    except (NamedModelNotFound, NotFound) as error:
        return problem("model_not_found", error.message, param=MODEL, line=line)
    except (InvalidRequest, Conflict) as error:
        return _of_job(error, line)
    return None


def _of_job(error: InvalidRequest | Conflict, line: int) -> Problem:
    """What is wrong with the job of a model: the model that a line names, or what the batch itself says of its jobs."""
    section = (error.field or "model").partition(".")[0]
    if section == "model":
        return problem(error.code.lower(), error.message, param=MODEL, line=line)
    param = f"trainyard.{error.field}" if section in PARTS else error.field
    return problem(error.code.lower(), error.message, param=param)


def plan(plane: ControlPlane, batch: Batch, name: str) -> None:
    """Raises what the submission of the model's job would raise."""
    caller = rows.caller_of(batch)
    with plane.db.read() as session:
        meant = models.meant(plane, session, caller, name, batch.endpoint)
    submission.plan(plane, caller, new_job(batch, name, 0, meant), project=batch.project, forwarded=meant.tokens)


def new_job(batch: Batch, name: str, number: int, meant: models.Meant) -> NewInference:
    task = {"endpoint": batch.endpoint, "only_model": name, "created": int(batch.created_at.timestamp())}
    document = job_document(
        batch.id, number, input_file_id=batch.input_file_id, task=task, serving=meant.serving, parts=batch.parts
    )
    return NewInference(document=document, model=meant.model)


def _record(plane: ControlPlane, seen: Batch, found: _Slice) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status != BatchState.VALIDATING or batch.checked_lines != seen.checked_lines:
            return
        batch.checked_lines, batch.models, batch.problems = found.checked, found.models, found.problems
        batch.pending_reason, batch.updated_at = "", utc_now()
        batch.total = _requests(session, batch) or found.checked
        if found.problems and found.is_last:
            rows.fail(session, batch, found.problems)
        elif found.is_last:
            rows.move(session, batch, BatchState.IN_PROGRESS)


def _fail(plane: ControlPlane, seen: Batch, problems: Iterator[Problem] | Sequence[Problem]) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status == BatchState.VALIDATING:
            batch.total = _requests(session, batch) or batch.total
            rows.fail(session, batch, problems)


def _requests(session: Session, batch: Batch) -> int | None:
    """How many the file has; None while it is not known, as of a compressed one, or not any more."""
    file = session.get(File, batch.input_file_id)
    return file.records if file is not None else None
