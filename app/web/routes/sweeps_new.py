"""Creating a sweep: a form beside the document, checks while it is written, and the creation."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from flask import Blueprint, Response, url_for
from marshmallow import fields, validate

from app.domain.errors import InvalidRequest, TrainyardError
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.rules.evaluations import MOST as MOST_EVALUATIONS
from app.domain.sweeps.rules.objectives import MAX_CONSTRAINTS
from app.domain.sweeps.space import MAX_PARAMETERS
from app.domain.sweeps.spec import SweepSpec
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.request_body import validated
from app.http.sweep_documents import complete
from app.schemas.documents import RequestSchema
from app.schemas.strict_fields import Text
from app.schemas.tuning.sweeps import CreateSweepSchema
from app.security.permissions import Permission
from app.services.queues import queues
from app.services.sweeps import creation
from app.services.sweeps.creation import CheckedSweep, CreatedSweep
from app.services.sweeps.reading import plans
from app.services.sweeps.search.suggestions import REQUEST_SLOTS, SearchUnavailable, Suggestions
from app.web import drafts, job_documents
from app.web.drafts import DraftFormSchema, StartQuerySchema
from app.web.forms import form
from app.web.job_filters import Given
from app.web.pages import done, page, part
from app.web.sweeps import sweep_form, sweep_rows

blueprint = Blueprint("web_sweeps_new", __name__)
_DOCUMENT = CreateSweepSchema()
_MOST_ROWS = 40  # of a page; further parameters stand in the document


class _Method(NamedTuple):
    training_type: str
    framework: str


class SweepRowsQuerySchema(RequestSchema):
    training_type = fields.String(load_default="")
    framework = fields.String(load_default="")
    row = Given(Text(longest=200), validate=validate.Length(max=MAX_PARAMETERS))


@blueprint.get("/sweeps/new")
@operation("Show the form to create a sweep", permission=Permission.MANAGE, query=StartQuerySchema, media="html")
def new(query: dict[str, Any]) -> Response:
    begun = drafts.start(query)
    metrics = sweep_form.metrics_of(begun)
    document = sweep_form.document_of(begun, metrics)
    training = document["job"].get("training_config") or {}
    method = _Method(training.get("training_type") or "", (training.get("framework") or {}).get("type", ""))
    return page(
        "sweeps/new.html",
        text=job_documents.text_of(document),
        origin=begun.origin,
        groups=sweep_form.groups(metrics),
        more=sweep_form.more_groups(),
        queues=queues.names(plane().db),
        constraints=_constraints([], method),
        evaluations=_evaluations([str(number) for number, _ in enumerate(training.get("evaluations") or ())], method),
        **parameter_rows(list(document["parameters"]), *method),
        **drafts.choices(begun.project),
    )


@blueprint.get("/sweeps/new/parameters")
@operation("Show the rows of parameters", permission=Permission.MANAGE, query=SweepRowsQuerySchema, media="html")
def parameters(query: dict[str, Any]) -> Response:
    return part("sweeps/parameters.html", **parameter_rows(query["row"], query["training_type"], query["framework"]))


@blueprint.get("/sweeps/new/constraints")
@operation("Show the rows of constraints", permission=Permission.MANAGE, query=SweepRowsQuerySchema, media="html")
def constraints(query: dict[str, Any]) -> Response:
    method = _Method(query["training_type"], query["framework"])
    return part("sweeps/numbered.html", numbered=_constraints(query["row"], method))


@blueprint.get("/sweeps/new/evaluations")
@operation(
    "Show the rows of planned evaluations", permission=Permission.MANAGE, query=SweepRowsQuerySchema, media="html"
)
def evaluations(query: dict[str, Any]) -> Response:
    method = _Method(query["training_type"], query["framework"])
    return part("sweeps/numbered.html", numbered=_evaluations(query["row"], method))


@blueprint.post("/sweeps/new/check")
@operation(
    "Check the document of a sweep, and show what it would try",
    permission=Permission.MANAGE,
    media="html",
    **form(DraftFormSchema),
)
def check(body: dict[str, Any]) -> Response:
    wanted: dict[str, Any] = {"complete": complete, "project": body["project"] or None}
    return checked_part(lambda: creation.check(plane(), caller(), _read(body["document"]), **wanted))


@blueprint.post("/sweeps/new")
@operation("Create a sweep", permission=Permission.MANAGE, media="html", **form(DraftFormSchema))
def send(body: dict[str, Any]) -> Response:
    made: list[CreatedSweep] = []
    creation.create(
        plane(),
        caller(),
        _read(body["document"]),
        complete=complete,
        project=body["project"] or None,
        on_written=lambda _, created: made.append(created),
    )
    sweep = made[-1].sweep
    said = [f"{sweep.name} makes its first trial as soon as it can start.", *made[-1].warnings]
    return done(" ".join(said), url_for("web_sweeps.sweep", sweep_id=sweep.id))


def checked_part(check: Callable[[], CheckedSweep]) -> Response:
    """What the sweep would try, or what is wrong with its document."""
    template = "sweeps/check.html"
    try:
        checked = check()
        with closing(Suggestions(slots=REQUEST_SLOTS)) as suggestions:
            plan = plans.plan(suggestions, checked)
    except SearchUnavailable as error:  # a library that is not installed, of which its message says more than a 503
        return drafts.problem(InvalidRequest(error.message, field="method.name"), template)
    except TrainyardError as error:
        return drafts.problem(error, template)
    return part(template, problem=None, plan=plan, spec=checked.spec, trials=_trials(checked, plan.grid_size))


def _read(text: str) -> SweepSpec:
    """Raises InvalidRequest or BadShape with every problem."""
    found: SweepSpec = validated(_DOCUMENT, drafts.read(text))
    return found


def parameter_rows(names: list[str], training_type: str, framework: str) -> dict[str, Any]:
    """What sweeps/parameters.html shows."""
    names = [*dict.fromkeys(names)]
    training_type = training_type or (CUSTOM if framework == CUSTOM else "")
    return {
        "training_type": training_type,
        "framework": framework,
        "names": names,
        "rows": sweep_rows.parameters(names, training_type, framework)[:_MOST_ROWS],
        "suggestions": sweep_rows.suggestions(training_type, framework),
    }


def _constraints(keys: list[str], method: _Method) -> dict[str, Any]:
    return {
        "id": "constraints",
        "url": url_for("web_sweeps_new.constraints"),
        "path": sweep_rows.CONSTRAINTS,
        "rows": sweep_rows.constraints(min(len(keys), MAX_CONSTRAINTS)),
        "start": sweep_rows.CONSTRAINT,
        "add": "Add constraint",
        "made": _made(keys, method),
    }


def _evaluations(keys: list[str], method: _Method) -> dict[str, Any]:
    return {
        "id": "evaluations",
        "url": url_for("web_sweeps_new.evaluations"),
        "path": sweep_rows.EVALUATIONS,
        "rows": sweep_rows.evaluations(min(len(keys), MOST_EVALUATIONS)),
        "start": sweep_rows.EVALUATION,
        "add": "Add evaluation",
        "made": _made(keys, method),
    }


def _made(keys: list[str], method: _Method) -> str:
    """What the part was made of, as submit.js writes it."""
    training_type = method.training_type or (CUSTOM if method.framework == CUSTOM else "")
    return " ".join((training_type, method.framework, *keys))


def _trials(checked: CheckedSweep, grid_size: int | None) -> int | None:
    """How many it makes, if nothing ends it before; None: as many as its other bounds allow."""
    most = checked.spec.budget.max_trials
    sizes = [each for each in (most, grid_size if checked.spec.method.name == "grid" else None) if each is not None]
    return min(sizes, default=None)
