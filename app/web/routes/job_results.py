"""What a job has made: its files, model card, and how to load or serve them."""

from typing import Any

from flask import Blueprint, Response

from app.domain.errors import NotFound
from app.domain.lifecycle.states import TERMINAL
from app.domain.model_cards.facts import ModelCard
from app.domain.model_cards.markdown import as_markdown, python_lines, shell_lines
from app.http.artifact_download import download_of_artifact
from app.http.context import caller, plane
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.attempts import artifacts
from app.services.jobs import details, lookup, reports
from app.services.provenance import model_cards
from app.web.job_frame import job_page

blueprint = Blueprint("web_job_results", __name__)
_MOST_FILES = 100
_KINDS = (
    (artifacts.MODEL, "Model"),
    (artifacts.NODES, "Output of other nodes"),
    (artifacts.DIAGNOSTICS, "Diagnostics"),
    (artifacts.TENSORBOARD, "Event files of TensorBoard"),
    (artifacts.WANDB, "Run for wandb sync"),
)


@blueprint.get("/jobs/<job_id>/results")
@operation("Show what a job has made", permission=Permission.VIEW, media="html")
def results(job_id: str) -> Response:
    with plane().db.snapshot() as session:
        row = lookup.find(session, caller(), job_id)
        found = details.without_outlook(session, [row])[0]
        report = reports.completion_report(session, row) if row.state in TERMINAL else None
        files = [(label, artifacts.listed(session, job_id, kind)) for kind, label in _KINDS]
        card = _card(session, row)
    return job_page(
        "job/results.html",
        found,
        "results",
        report=report,
        files=[(label, len(each), each[:_MOST_FILES]) for label, each in files if each],
        card=card,
        shell=shell_lines(card) if card is not None else [],
        python=python_lines(card) if card is not None else "",
    )


@blueprint.get("/jobs/<job_id>/model-card.md")
@operation("Download the model card of a job's result", permission=Permission.VIEW, media="bytes")
def model_card(job_id: str) -> Response:
    with plane().db.snapshot() as session:
        card = model_cards.model_card(session, lookup.find(session, caller(), job_id))
    response = Response(as_markdown(card), mimetype="text/markdown")
    response.headers["Content-Disposition"] = f'attachment; filename="{card.job_id}.md"'
    return response


@blueprint.get("/jobs/<job_id>/files/<path:path>")
@operation("Download a file of a job", permission=Permission.VIEW, media="bytes")
def file(job_id: str, path: str) -> Response:
    return download_of_artifact(job_id, path)


def _card(session: Any, job: Any) -> ModelCard | None:  # noqa: ANN401 – sessions and rows are of the services
    try:
        return model_cards.model_card(session, job)
    except NotFound:
        return None
