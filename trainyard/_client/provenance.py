"""The client's calls about where a model comes from, part of trainyard.client."""

import http.client
import time
from pathlib import Path
from typing import Any, TypedDict, cast

from trainyard._client.calls import Calls, RetryState, query_of
from trainyard._client.downloads import pieces
from trainyard._client.errors import ApiError, Unreachable
from trainyard._client.http import quote


class LineageNode(TypedDict):
    kind: str
    id: str
    name: str
    status: str | None
    sha256: str | None
    revision: str | None


class LineageLink(TypedDict):
    source: str
    target: str
    relation: str
    sha256: str | None
    sampled_sha256: str | None
    commit: str | None


class Lineage(TypedDict):
    job_id: str
    nodes: list[LineageNode]
    links: list[LineageLink]
    truncated: bool


class Provenance:
    """Model cards, and what jobs were made of."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def model_card(self, job_id: str) -> dict[str, Any]:
        """The facts about a job's result. Raises NotFound until the job has ended with one."""
        return self._calls.record("GET", _of_job(job_id, "model-card"))

    def model_card_text(self, job_id: str) -> str:
        """The same as Markdown, with the YAML at its head that hubs read."""
        tries = RetryState(self._calls.patience)
        while True:
            try:
                return self._text(_of_job(job_id, "model-card"))
            except (Unreachable, ApiError) as error:
                time.sleep(tries.pause(error))

    def lineage(self, job_id: str, *, depth: int | None = None) -> Lineage:
        """What the job was made of, and what was made of it, ``depth`` jobs away."""
        return cast("Lineage", self._calls.record("GET", _of_job(job_id, "lineage"), query=query_of(depth=depth)))

    def wandb(self, job_id: str, to: Path, *, project: str = "", entity: str = "") -> Path:
        """Save the job's metrics as a directory in ``to``, which `wandb sync` uploads; all attempts are one run.

        Returns the directory. A later call replaces its content.
        """
        saved = to / f"offline-run-{job_id}"  # by the name W&B tells it from a run that was uploaded
        saved.mkdir(parents=True, exist_ok=True)
        run, partial = saved / f"run-{job_id}.wandb", saved / "run.part"
        query = query_of(project=project, entity=entity)
        with (
            self._calls.http.open("GET", _of_job(job_id, "wandb"), query=query) as response,
            partial.open("wb") as file,
        ):
            for piece in pieces(response, f"the run of {job_id}"):
                file.write(piece)
        partial.rename(run)
        return saved

    def _text(self, path: str) -> str:
        transport = self._calls.http
        with transport.open("GET", path, headers={"Accept": "text/markdown"}) as response:
            try:
                return response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection to {transport.url} broke: {error}") from error


def _of_job(job_id: str, what: str) -> str:
    return f"/v1/jobs/{quote(job_id)}/{what}"
