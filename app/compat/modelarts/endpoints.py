"""``endpoints`` of training jobs: where people reach TensorBoard, JupyterLab and the job's sandbox."""

from collections.abc import Mapping
from typing import Any

from app.compat.modelarts.fields import JUPYTER_LAB, TENSORBOARD, wants_tensorboard
from app.compat.modelarts.status import ranks_of_tasks
from app.compat.modelarts.to_native import DIALECT
from app.domain.interactive import SSH_RANK, ssh_host
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.interactive import NOTEBOOK_PORT
from app.domain.spec.model import JobDocument
from app.http.context import backend, caller
from app.schemas.spec.field_verdicts import warning
from app.security.permissions import Permission
from app.services.interactive import port_links
from app.services.jobs.details import JobDetails
from app.services.rows import Session
from app.services.telemetry import tensorboards

_BOARDS_MISSING = "TensorBoard is not configured; the operator sets TRAINYARD_TENSORBOARD_URL"
_PORTS_MISSING = (
    f"no gateway serves ports here (TRAINYARD_GATEWAY_PORTS_URL): `trainyard port-forward` reaches {NOTEBOOK_PORT}"
)


def endpoints_of(session: Session, found: JobDetails, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Of a training job that is no search; without those that are not served, or that the caller may not open."""
    settings, job = backend().settings, found.job
    endpoints: dict[str, Any] = {}
    if wants_tensorboard(metadata) and (board := tensorboards.address_of(settings, job.id, job.name)) is not None:
        endpoints["tensorboard"] = {"url": board[0], "token": board[1]}
    if job.state in TERMINAL:
        return endpoints
    if found.document.interactive_config.notebook and (
        link := port_links.of_notebook(session, settings, caller(), job)
    ):
        endpoints["jupyter_lab"] = {"url": link.url, "token": link.token}
    keys = job.foreign.get(DIALECT, {}).get("key_pair_names")
    if keys and caller().may(Permission.MANAGE) and port_links.may_be_reached(session, job):
        endpoints["ssh"] = {"key_pair_names": keys, "task_urls": _task_urls(job.id, found.document)}
    return endpoints


def _task_urls(job_id: str, document: JobDocument) -> list[dict[str, str]]:
    """What `ssh` calls each task.

    With the lines for ~/.ssh/config of docs/how-to/reach-a-running-job.md, which start ssh-proxy.
    """
    tasks = ranks_of_tasks(document)
    if len(tasks) == 1 and not document.tasks:
        places = dict.fromkeys(tasks, "")
    else:
        places = {task: task if document.tasks else f"{SSH_RANK}-{ranks.start}" for task, ranks in tasks.items()}
    return [{"task": task, "url": f"ssh://{ssh_host(job_id, place)}"} for task, place in places.items()]


def warnings_of_endpoints(job: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Warnings of annotations whose servers this installation does not have; ``document``: the native one."""
    settings = backend().settings
    missing = []
    if wants_tensorboard(job["metadata"]) and not settings.tensorboard.url:
        missing.append((TENSORBOARD, _BOARDS_MISSING))
    if document.get("interactive_config", {}).get("notebook") and not settings.gateway.ports_url:
        missing.append((JUPYTER_LAB, _PORTS_MISSING))
    return [warning(f"metadata.annotations.{name}", why) for name, why in missing]
