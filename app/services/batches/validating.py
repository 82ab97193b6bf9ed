"""Validation of a batch: its file is inspected by others, then each request is checked, a slice in each step."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from app.domain.batches.documents import job_document
from app.domain.batches.limits import LONGEST_MODEL, MOST_BYTES, MOST_MODELS, MOST_PROBLEMS, MOST_REQUESTS
from app.domain.batches.problems import Problem, of_inspection, problem
from app.domain.batches.states import BatchState
from app.domain.errors import Conflict, InvalidRequest, LimitExceeded, ModelNotFound, NotFound, Unauthenticated
from app.domain.files.lines import BadLine, Line, record_of
from app.domain.files.purposes import ERROR, UPLOADED_STATUS
from app.models import Batch, File
from app.models.base import utc_now
from app.services.batches import content, models, rows
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
    refused: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        return len(self.problems) >= MOST_PROBLEMS


def advance(plane: ControlPlane, batch: Batch, check: BodyCheck) -> bool:
    """Check the next requests; whether there is more to do at once."""
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
    if refused := _refusal(file):
        _fail(plane, batch, [refused])
        return False
    _record(plane, batch, _checked(plane, batch, check))
    return True


def _refusal(file: File) -> Problem | None:
    if file.size_bytes > MOST_BYTES:
        return problem("file_too_large", f"the file has {file.size_bytes} bytes; a batch has at most {MOST_BYTES}")
    if (file.records or 0) > MOST_REQUESTS:
        return problem("too_many_requests", f"the file has {file.records} requests; a batch has {MOST_REQUESTS}")
    return None


def _checked(plane: ControlPlane, batch: Batch, check: BodyCheck) -> _Slice:
    found = _Slice(batch.checked_lines, dict(batch.models), list(batch.problems))
    found.refused = {each["model"] for each in found.problems if "model" in each}
    ends_at = None
    with closing(content.lines_of(plane, batch)) as requests:
        for line in islice(requests, found.checked, None):
            ends_at = ends_at or time.monotonic() + SLICE_SECONDS  # without the lines of earlier slices
            found.checked += 1
            found.problems += _of_line(plane, batch, found, line, check)
            if found.is_full or time.monotonic() > ends_at:
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
    body = record["body"]
    for param, message, code in check(batch.endpoint, body):
        yield problem(code, message, param=param, line=line.number)
    name = body["model"]
    if name not in found.models and name not in found.refused:
        refused = _refused_model(plane, batch, name, found)
        if refused is not None:
            found.refused.add(name[:LONGEST_MODEL])
            yield {**refused, "line": line.number, "model": name[:LONGEST_MODEL]}
            return
    if name not in found.refused:
        found.models[name] = found.models.get(name, 0) + 1


def _refused_model(plane: ControlPlane, batch: Batch, name: str, found: _Slice) -> Problem | None:
    """Why the model's job would be refused; None: it would not be."""
    if len(name) > LONGEST_MODEL or not name.isprintable():
        return problem("model_not_found", f"names no model: {name[:64]}", param=MODEL)
    if len(found.models) >= MOST_MODELS:
        return problem("too_many_models", f"a batch names at most {MOST_MODELS} models", param=MODEL)
    try:
        plan(plane, batch, name)
    except (LimitExceeded, Unauthenticated):
        return None  # its jobs wait
    except (ModelNotFound, NotFound) as error:
        return problem("model_not_found", error.message, param=MODEL)
    except (InvalidRequest, Conflict) as error:
        is_of_model = error.field is None or error.field.partition(".")[0] == "model"
        return problem(error.code.lower(), error.message, param=MODEL if is_of_model else error.field)
    return None


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
        batch.total = sum(found.models.values())
        if found.problems and (found.is_last or found.is_full):
            rows.fail(batch, found.problems)
        elif found.is_last:
            rows.move(batch, BatchState.IN_PROGRESS)


def _fail(plane: ControlPlane, seen: Batch, problems: Iterator[Problem] | Sequence[Problem]) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status == BatchState.VALIDATING:
            rows.fail(batch, problems)
