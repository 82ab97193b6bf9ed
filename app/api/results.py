"""Results of a job: checkpoints, attempts, the completion report and artifacts."""

import re
from typing import Any

from flask import Blueprint, Response, request

from app.domain.errors import NotFound
from app.http.context import backend, caller, plane
from app.http.envelope import Reply
from app.http.errors import RangeNotSatisfiable, respond
from app.http.operation import operation
from app.models import Artifact
from app.schemas.artifacts import ArtifactQuerySchema, ArtifactsSchema, TensorboardSchema
from app.schemas.attempts import AttemptsSchema
from app.schemas.checkpoints import CheckpointsSchema
from app.schemas.reports import ReportSchema
from app.security.permissions import Permission
from app.services.attempts import artifacts, checkpoints
from app.services.evaluations import of_job
from app.services.jobs import history, lookup, reports
from app.services.telemetry import tensorboards

blueprint = Blueprint("results", __name__)
_CHECKPOINTS, _ATTEMPTS, _REPORT, _ARTIFACTS = CheckpointsSchema(), AttemptsSchema(), ReportSchema(), ArtifactsSchema()
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


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
        lookup.find(session, caller(), job_id)
    found = tensorboards.address_of(backend().settings, job_id)
    if found is None:
        raise NotFound(
            "TensorBoard is not configured: the operator runs `trainyard tensorboard` and sets "
            "TRAINYARD_TENSORBOARD_URL"
        )
    return Reply(dict(zip(("url", "token"), found, strict=True)))


@blueprint.get("/jobs/<job_id>/artifacts/<path:path>")
@operation("Download an artifact of a job, or a range of it", permission=Permission.VIEW, media="bytes")
def download_artifact(job_id: str, path: str) -> Response:
    here = plane()
    with here.db.read() as session:
        lookup.find(session, caller(), job_id)
        artifact = artifacts.find(session, job_id, path)
    try:
        wanted = _wanted_range(artifact)
    except RangeNotSatisfiable as error:
        refused = respond(error)
        refused.headers["Content-Range"] = f"bytes */{artifact.size_bytes}"
        return refused
    start, end = wanted or (0, artifact.size_bytes)
    # Opened before the response starts, so that a missing file is an error; closed even if the body is not read (HEAD).
    file = artifacts.opened(here.storage, artifact, start=start)
    body = artifacts.pieces(file, end - start)
    response = Response(body, status=206 if wanted else 200, mimetype="application/octet-stream")
    response.call_on_close(file.close)
    response.headers["Content-Length"] = str(end - start)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Content-Disposition"] = "attachment"
    response.set_etag(artifact.sha256)
    if wanted:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{artifact.size_bytes}"
    return response


def _wanted_range(artifact: Artifact) -> tuple[int, int] | None:
    """(start, end) of a single byte range, end exclusive; None means the whole file, as for unsupported forms."""
    if request.method != "GET":
        return None  # RFC 9110: ranges are defined for GET alone
    match = _RANGE.fullmatch(request.headers.get("Range", "").replace(" ", ""))
    unchanged = request.headers.get("If-Range", f'"{artifact.sha256}"') == f'"{artifact.sha256}"'
    if match is None or not unchanged or not (match[1] or match[2]):
        return None
    size = artifact.size_bytes
    if not match[1]:
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if match[1] and match[2] and int(match[2]) < int(match[1]):
        return None  # RFC 9110: an invalid range is ignored
    if start >= size or (not match[1] and int(match[2]) == 0):
        raise RangeNotSatisfiable(f"the artifact has {size} bytes; ask for a range within them")
    return start, end
