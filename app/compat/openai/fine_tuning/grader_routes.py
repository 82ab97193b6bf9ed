"""Routes that validate graders, and run one on a sample."""

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

from flask import Blueprint

from app.compat.openai.answers.handing_on import asked
from app.compat.openai.bodies import json_body
from app.compat.openai.fine_tuning.grader_answers import PYTHON_SERVER, run_of
from app.compat.openai.fine_tuning.grader_schemas import (
    GraderRunSchema,
    RunGraderSchema,
    ValidatedGraderSchema,
    ValidateGraderSchema,
)
from app.domain.errors import BadSpec
from app.domain.graders.document import parse
from app.domain.graders.grading import MODEL_SERVER, OTHER, PYTHON_RUNTIME, NoGrade, grade, sample_of
from app.domain.openai_paths import CHAT_COMPLETIONS
from app.http.context import backend, caller, holder, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.patterns.fuzzy_match import fuzzy_match
from app.security.permissions import Permission
from app.services.preflight import gradings

blueprint = Blueprint("fine_tuning_graders", __name__)
FIELD = "grader"
MOST_SECONDS = 60.0  # of a run
MOST_PYTHON_SECONDS = 30.0  # of all its Python graders
# What templates may make of a sample and a record, if each is the whole: similar texts are sought in this process.
MOST_CHARACTERS = 256 << 10


@blueprint.post("/fine_tuning/alpha/graders/validate")
@operation(
    "Validate a grader",
    permission=Permission.MANAGE,
    answer=ValidatedGraderSchema,
    remembers=False,
    **json_body(ValidateGraderSchema),
)
def validate_grader(body: dict[str, Any]) -> Reply:
    parse(body[FIELD], FIELD)
    return Reply({FIELD: body[FIELD]})


@blueprint.post("/fine_tuning/alpha/graders/run")
@operation(
    "Run a grader on a sample",
    permission=Permission.MANAGE,
    answer=GraderRunSchema,
    remembers=False,
    **json_body(RunGraderSchema),
)
def run_grader(body: dict[str, Any]) -> Reply:
    grader, item, began = parse(body[FIELD], FIELD), body.get("item") or {}, time.monotonic()
    _refuse_large(body[FIELD], body["model_sample"], item)
    until = began + MOST_SECONDS
    until_python = began + min(MOST_PYTHON_SECONDS, MOST_SECONDS)

    def run_python(source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        return _reward_of(source, sample, item, until_python - time.monotonic())

    def ask(model: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return _answer_of(model, body, until - time.monotonic())

    # Like an open stream, this blocks a server thread; the stream slots bound how many threads may block.
    with backend().streams.held(holder()):
        sample = sample_of(body["model_sample"])
        graded = grade(grader, item=item, sample=sample, ask=ask, run_python=run_python, fuzzy_match=fuzzy_match)
    return Reply(run_of(body[FIELD], graded, time.monotonic() - began))


def _refuse_large(grader: Mapping[str, Any], sample: str, item: Mapping[str, Any]) -> None:
    """Raises BadSpec."""
    places = json.dumps(grader).count("{{")
    if (most := places * (len(sample) + len(json.dumps(item)))) > MOST_CHARACTERS:
        raise BadSpec(
            f"of it and model_sample the grader's {places} templates may make {most:,} characters; at most "
            f"{MOST_CHARACTERS:,}",
            field="item",
        )


def _answer_of(model: str, body: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
    """A model's answer, asked with the caller's key. Raises NoGrade, and LimitExceeded."""
    if seconds <= 0:
        raise NoGrade(MODEL_SERVER, f"{model} is not asked: the run has taken the {MOST_SECONDS:g} s that it may")
    try:
        status, content = asked(CHAT_COMPLETIONS, {**body, "model": model}, seconds)
        answer = json.loads(content)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoGrade(MODEL_SERVER, f"{model} can't be asked: {error}") from error
    if status != http.client.OK:
        problem = answer.get("error") if isinstance(answer, dict) else None
        message = problem.get("message") if isinstance(problem, dict) else None
        if status == http.client.NOT_FOUND and message:
            raise NoGrade(OTHER, message)  # the grader names no model that there is
        raise NoGrade(MODEL_SERVER, f"{model} does not answer: {message or f'status {status}'}")
    return dict(answer)


def _reward_of(source: str, sample: Mapping[str, Any], item: Mapping[str, Any], seconds: float) -> float:
    """The number that a coordinator's sandbox got from a Python grader. Raises NoGrade."""
    report = gradings.report_of(plane().db, caller().home_project, source, sample, item, seconds)
    if "reward" in report:
        return float(report["reward"])
    if "runtime_error" in report:
        raise NoGrade(PYTHON_RUNTIME, str(report["runtime_error"]))
    raise NoGrade(PYTHON_SERVER, str(report["unavailable"]))
