"""The response with a job's artifact, for the API and for pages."""

from flask import Response

from app.http.context import caller, plane
from app.http.downloads import Content, download
from app.services.attempts import artifacts
from app.services.jobs import lookup


def download_of_artifact(job_id: str, path: str) -> Response:
    """The artifact, or the range of it that the request asks for. Raises NotFound."""
    here = plane()
    with here.db.read() as session:
        lookup.find(session, caller(), job_id)
        artifact = artifacts.find(session, job_id, path)
    return download(
        Content(
            what="the artifact",
            size_bytes=artifact.size_bytes,
            sha256=artifact.sha256,
            opened=lambda start: artifacts.opened(here.storage, artifact, start=start),
        )
    )
