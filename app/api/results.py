"""Results of a job: checkpoints, attempts, the completion report and artifacts."""

from typing import Any

from flask import Blueprint, Response, request

from app.domain.errors import NotFound
from app.domain.model_cards.markdown import as_markdown
from app.domain.spec.model import Tracker
from app.http.artifact_download import download_of_artifact
from app.http.context import backend, caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.schemas.results.artifacts import ArtifactQuerySchema, ArtifactsSchema, TensorboardSchema
from app.schemas.results.attempts import AttemptsSchema
from app.schemas.results.checkpoints import CheckpointsSchema
from app.schemas.results.model_cards import LineageQuerySchema, LineageSchema, ModelCardSchema, WandbQuerySchema
from app.schemas.results.reports import ReportSchema
from app.security.permissions import Permission
from app.services.attempts import artifacts, checkpoints
from app.services.evaluations import of_job
from app.services.jobs import history, lookup, reports
from app.services.provenance import lineage, model_cards, wandb_export
from app.services.telemetry import tensorboards

blueprint = Blueprint("results", __name__)
_CHECKPOINTS, _ATTEMPTS, _REPORT, _ARTIFACTS = CheckpointsSchema(), AttemptsSchema(), ReportSchema(), ArtifactsSchema()
_MODEL_CARD, _LINEAGE = ModelCardSchema(), LineageSchema()
MARKDOWN = "text/markdown"


@blueprint.get("/jobs/<job_id>/checkpoints")
@operation("List the checkpoints of a job", permission=Permission.VIEW, answer=CheckpointsSchema)
def list_checkpoints(job_id: str) -> Reply:
    with plane().db.read() as session:
        lookup.find(session, caller(), job_id)
        return Reply(_CHECKPOINTS.dump({"checkpoints": checkpoints.list_for(session, job_id)}))


@blueprint.get("/jobs/<job_id>/attempts")
@operation("List the attempts of a job", permission=Permission.VIEW, answer=AttemptsSchema)
def list_attempts(job_id: str) -> Reply:
    with plane().db.read() as session:
        lookup.find(session, caller(), job_id)
        return Reply(_ATTEMPTS.dump({"attempts": history.attempts(session, job_id)}))


@blueprint.get("/jobs/<job_id>/report")
@operation("Get the completion report of a job", permission=Permission.VIEW, answer=ReportSchema)
def get_report(job_id: str) -> Reply:
    with plane().db.read() as session:
        job = lookup.find(session, caller(), job_id)
        report = reports.completion_report(session, job)
        return Reply(_REPORT.dump({**vars(report), **vars(of_job.evaluations_of(session, job))}))


@blueprint.get("/jobs/<job_id>/model-card")
@operation(
    "Get the model card of a job's result", permission=Permission.VIEW, answer=ModelCardSchema, media="json or markdown"
)
def get_model_card(job_id: str) -> Reply | Response:
    with plane().db.snapshot() as session:
        card = model_cards.model_card(session, lookup.find(session, caller(), job_id))
    if request.accept_mimetypes.best_match(["application/json", MARKDOWN]) == MARKDOWN:
        return Response(as_markdown(card), mimetype=MARKDOWN)
    return Reply(_MODEL_CARD.dump(card))


@blueprint.get("/jobs/<job_id>/lineage")
@operation(
    "Get what a job was made of, and what was made of it",
    permission=Permission.VIEW,
    query=LineageQuerySchema,
    answer=LineageSchema,
)
def get_lineage(job_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.snapshot() as session:
        found = lineage.lineage(session, lookup.find(session, caller(), job_id), **query)
    return Reply(_LINEAGE.dump({**vars(found), "nodes": found.nodes.values(), "links": found.links}))


@blueprint.get("/jobs/<job_id>/wandb")
@operation(
    "Get the metrics of a job as a file for `wandb sync`",
    permission=Permission.VIEW,
    query=WandbQuerySchema,
    media="run file",
)
def get_wandb(job_id: str, query: dict[str, Any]) -> Response:
    db = plane().db
    with db.read() as session:
        job = lookup.find(session, caller(), job_id)
    offline = next((each for each in job.document.tracking if each.is_offline), Tracker())
    asked = {"experiment": query["project"], "entity": query["entity"]}
    shown = offline.changed(**{name: value for name, value in asked.items() if value})
    response = Response(wandb_export.exported(db, job, shown), mimetype="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="run-{job.id}.wandb"'
    return response


@blueprint.get("/jobs/<job_id>/artifacts")
@operation("List the artifacts of a job", permission=Permission.VIEW, query=ArtifactQuerySchema, answer=ArtifactsSchema)
def list_artifacts(job_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        lookup.find(session, caller(), job_id)
        return Reply(_ARTIFACTS.dump({"artifacts": artifacts.listed(session, job_id, query["kind"])}))


@blueprint.get("/jobs/<job_id>/tensorboard")
@operation("Get the TensorBoard URL of a job", permission=Permission.VIEW, answer=TensorboardSchema)
def get_tensorboard(job_id: str) -> Reply:
    with plane().db.read() as session:
        name = lookup.find(session, caller(), job_id).name
    found = tensorboards.address_of(backend().settings, job_id, name)
    if found is None:
        raise NotFound(
            "TensorBoard is not configured: the operator runs `trainyard tensorboard` and sets "
            "TRAINYARD_TENSORBOARD_URL"
        )
    return Reply(dict(zip(("url", "token"), found, strict=True)))


@blueprint.get("/jobs/<job_id>/artifacts/<path:path>")
@operation("Download an artifact of a job, or a range of it", permission=Permission.VIEW, media="bytes")
def download_artifact(job_id: str, path: str) -> Response:
    return download_of_artifact(job_id, path)
