"""Forking a sweep: a form that begins with what the sweep has, checks while it is written, and the creation."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.sweeps.spec import SweepSpec
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.request_body import validated
from app.http.sweep_documents import complete
from app.schemas.queries import AnyQuerySchema
from app.schemas.tuning.sweeps import ForkSweepSchema
from app.security.permissions import Permission
from app.services.sweeps import forks, lookup
from app.services.sweeps.creation import CreatedSweep
from app.web import drafts, job_documents
from app.web.drafts import DraftFormSchema
from app.web.forms import form
from app.web.pages import done, page
from app.web.routes.sweeps_new import checked_part, parameter_rows
from app.web.sweeps import fork_document, sweep_form

blueprint = Blueprint("web_sweeps_fork", __name__)
_DOCUMENT = ForkSweepSchema()


@blueprint.get("/sweeps/<sweep_id>/fork")
@operation("Show the form to fork a sweep", permission=Permission.MANAGE, query=AnyQuerySchema, media="html")
def new(sweep_id: str, query: dict[str, Any]) -> Response:
    del query
    with plane().db.read() as session:
        first = lookup.find(session, caller(), sweep_id)
        document, name, project = fork_document.shown(forks.beginning(first)), first.name, first.project
        spec = SweepSpec.from_json(first.spec)
    training = spec.job.get("training_config") or {}
    return page(
        "sweeps/fork.html",
        first={"id": sweep_id, "name": name, "spec": spec},
        text=job_documents.text_of(document),
        groups=sweep_form.groups_of_fork(),
        more=sweep_form.more_groups_of_fork(),
        pairs=[],
        project=project,
        **parameter_rows(
            list(document["parameters"]),
            training.get("training_type") or "",
            (training.get("framework") or {}).get("type", ""),
        ),
    )


@blueprint.post("/sweeps/<sweep_id>/fork/check")
@operation(
    "Check the document of a fork, and show what it would try",
    permission=Permission.MANAGE,
    media="html",
    **form(DraftFormSchema),
)
def check(sweep_id: str, body: dict[str, Any]) -> Response:
    _require(sweep_id)

    def checked() -> Any:  # noqa: ANN401 – as the service's
        return forks.check(plane(), caller(), sweep_id, _read(body["document"]), complete=complete)

    return checked_part(checked)


@blueprint.post("/sweeps/<sweep_id>/fork")
@operation("Fork a sweep", permission=Permission.MANAGE, media="html", **form(DraftFormSchema))
def send(sweep_id: str, body: dict[str, Any]) -> Response:
    _require(sweep_id)
    made: list[CreatedSweep] = []
    forks.fork(
        plane(),
        caller(),
        sweep_id,
        _read(body["document"]),
        complete=complete,
        on_written=lambda _, created: made.append(created),
    )
    sweep = made[-1].sweep
    said = [f"{sweep.name} makes its first trial as soon as it can start.", *made[-1].warnings]
    return done(" ".join(said), url_for("web_sweeps.sweep", sweep_id=sweep.id))


def _require(sweep_id: str) -> None:
    """Before the document is read: to others there is no such sweep, whatever they send."""
    with plane().db.read() as session:
        lookup.find(session, caller(), sweep_id)


def _read(text: str) -> dict[str, Any]:
    """Raises InvalidRequest or BadShape with every problem."""
    return fork_document.complete(validated(_DOCUMENT, drafts.read(text)))
