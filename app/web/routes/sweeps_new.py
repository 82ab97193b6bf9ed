"""Creating a sweep: a form beside the document, checks while it is written, and the creation."""

from contextlib import closing
from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields, validate

from app.domain.errors import InvalidRequest, TrainyardError
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.sweeps.space import MAX_PARAMETERS
from app.domain.sweeps.spec import SweepSpec
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.request_body import validated
from app.http.sweep_documents import complete
from app.schemas.documents import RequestSchema
from app.schemas.strict_fields import Text
from app.schemas.sweeps import CreateSweepSchema
from app.security.permissions import Permission
from app.services.queues import queues
from app.services.sweeps import creation, plans
from app.services.sweeps.creation import CheckedSweep, Created
from app.services.sweeps.search.suggestions import REQUEST_SLOTS, SearchUnavailable, Suggestions
from app.web import drafts, job_documents, sweep_form
from app.web.drafts import DraftFormSchema, StartQuerySchema
from app.web.forms import form
from app.web.job_filters import Given
from app.web.pages import done, page, part

blueprint = Blueprint("web_sweeps_new", __name__)
_DOCUMENT = CreateSweepSchema()
_MOST_ROWS = 40  # of a page; further parameters stand in the document


class ParametersQuerySchema(RequestSchema):
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
    framework = (training.get("framework") or {}).get("type", "")
    return page(
        "sweeps/new.html",
        text=job_documents.text_of(document),
        origin=begun.origin,
        groups=sweep_form.groups(metrics),
        more=sweep_form.more_groups(),
        queues=queues.names(plane().db),
        **_rows(list(document["parameters"]), training.get("training_type") or "", framework),
        **drafts.choices(begun.project),
    )


@blueprint.get("/sweeps/new/parameters")
@operation("Show the rows of parameters", permission=Permission.MANAGE, query=ParametersQuerySchema, media="html")
def parameters(query: dict[str, Any]) -> Response:
    return part("sweeps/parameters.html", **_rows(query["row"], query["training_type"], query["framework"]))


@blueprint.post("/sweeps/new/check")
@operation(
    "Check the document of a sweep, and show what it would try",
    permission=Permission.MANAGE,
    media="html",
    **form(DraftFormSchema),
)
def check(body: dict[str, Any]) -> Response:
    template = "sweeps/check.html"
    try:
        checked = creation.check(
            plane(), caller(), _read(body["document"]), complete=complete, project=body["project"] or None
        )
        with closing(Suggestions(slots=REQUEST_SLOTS)) as suggestions:
            plan = plans.plan(suggestions, checked)
    except SearchUnavailable as error:  # a library that is not installed, of which its message says more than a 503
        return drafts.problem(InvalidRequest(error.message, field="method.name"), template)
    except TrainyardError as error:
        return drafts.problem(error, template)
    return part(template, problem=None, plan=plan, spec=checked.spec, trials=_trials(checked, plan.grid_size))


@blueprint.post("/sweeps/new")
@operation("Create a sweep", permission=Permission.MANAGE, media="html", **form(DraftFormSchema))
def send(body: dict[str, Any]) -> Response:
    made: list[Created] = []
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


def _read(text: str) -> SweepSpec:
    """Raises InvalidRequest or BadShape with every problem."""
    found: SweepSpec = validated(_DOCUMENT, drafts.read(text))
    return found


def _rows(names: list[str], training_type: str, framework: str) -> dict[str, Any]:
    training_type = training_type or (CUSTOM if framework == CUSTOM else "")
    return {
        "training_type": training_type,
        "framework": framework,
        "names": names,
        "rows": sweep_form.rows(names[:_MOST_ROWS], training_type, framework),
        "suggestions": sweep_form.suggestions(training_type, framework),
    }


def _trials(checked: CheckedSweep, grid_size: int | None) -> int | None:
    """How many it makes, if nothing ends it before; None: as many as its other bounds allow."""
    most = checked.spec.budget.max_trials
    sizes = [each for each in (most, grid_size if checked.spec.method.name == "grid" else None) if each is not None]
    return min(sizes, default=None)
