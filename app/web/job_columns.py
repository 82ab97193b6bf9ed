"""The columns of the list of jobs: those of every job, and any metric or hyperparameter by its name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import TERMINAL
from app.domain.suggestions import did_you_mean
from app.security.permissions import Caller
from app.services.jobs.details import JobDetails
from app.web.formatting import short_id

METRIC, PARAMETER = "metric:", "parameter:"
_MOST_OF_NOTE = 160
Form = Literal["text", "id", "number", "share", "seconds", "moment", "state", "labels"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """``form`` says how its values are shown; ``order`` is the list's order by it, empty if there is none."""

    name: str
    title: str
    value: Callable[[JobDetails], Any]
    form: Form = "text"
    order: str = ""

    @property
    def is_number(self) -> bool:
        return self.form in {"number", "seconds"}


def _note(job: JobDetails) -> str:
    """Why it waits or how it failed, in one line; not what its state says already."""
    row = job.job
    if row.error_type:
        lines = (row.error_message or "").strip().splitlines()
        return _shortened(f"{row.error_type}: {lines[0]}" if lines else row.error_type)
    reason = job.pending_reason or row.status_reason
    return "" if reason.upper() == row.status else _shortened(reason)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_OF_NOTE else text[: _MOST_OF_NOTE - 1] + "…"


def _progress(job: JobDetails) -> float | None:
    """None when it is unknown: the job has ended, or counts steps, without having said how far it is."""
    row = job.job
    return None if not row.progress and (row.current_step or row.state in TERMINAL) else row.progress


_COLUMNS = (
    Column(name="state", title="State", form="state", order="status", value=lambda job: job),
    Column(name="progress", title="Progress", form="share", value=_progress),
    Column(name="note", title="Note", value=_note),
    Column(name="method", title="Method", value=lambda job: job.job.training_type),
    Column(name="framework", title="Framework", value=lambda job: job.job.framework),
    Column(name="kind", title="Kind", value=lambda job: job.job.kind),
    Column(name="model", title="Model", value=lambda job: job.document.training_config.base_model.model_id),
    Column(name="project", title="Project", value=lambda job: job.job.project),
    Column(name="queue", title="Queue", value=lambda job: job.job.queue),
    Column(name="priority", title="Priority", form="number", order="priority", value=lambda job: job.job.priority),
    Column(
        name="creator", title="Creator", value=lambda job: job.created_by_name or f"key {short_id(job.job.created_by)}"
    ),
    Column(name="labels", title="Labels", form="labels", value=lambda job: job.job.labels),
    Column(name="devices", title="Devices", form="number", value=lambda job: job.document.resource_config.gpu_count),
    Column(name="nodes", title="Nodes", value=lambda job: ", ".join(job.job.node_names)),
    Column(name="step", title="Step", form="number", value=lambda job: job.job.current_step),
    Column(name="eta", title="Time left", form="seconds", value=lambda job: job.job.eta_seconds),
    Column(name="elapsed", title="Running time", form="seconds", value=lambda job: job.elapsed_seconds),
    Column(name="attempts", title="Attempts", form="number", value=lambda job: job.job.attempt),
    Column(name="created", title="Created", form="moment", order="created_at", value=lambda job: job.job.created_at),
    Column(name="started", title="Started", form="moment", value=lambda job: job.job.started_at),
    Column(name="finished", title="Finished", form="moment", value=lambda job: job.job.finished_at),
    Column(name="sweep", title="Sweep", form="id", value=lambda job: job.job.sweep_id or ""),
)
NAMED: Mapping[str, Column] = {each.name: each for each in _COLUMNS}
_DEFAULTS = ("state", "progress", "note", "method", "project", "queue", "priority", "creator", "created")


def defaults(caller: Caller) -> tuple[str, ...]:
    """Without the project for a caller who sees only one."""
    return tuple(name for name in _DEFAULTS if name != "project" or caller.project is None)


def chosen(names: Sequence[str]) -> list[Column]:
    """The columns in the table's order, metrics and hyperparameters last. Raises InvalidRequest for an unknown one."""
    known = [column for column in _COLUMNS if column.name in names]
    return [*known, *(_free(name) for name in names if name not in NAMED)]


def metric_names(jobs: Sequence[JobDetails]) -> list[str]:
    return sorted({name for job in jobs for name in job.job.latest_metrics})


def parameter_names(jobs: Sequence[JobDetails]) -> list[str]:
    return sorted({name for job in jobs for name in _parameters(job)})


def _free(name: str) -> Column:
    if name.startswith(METRIC) and (metric := name.removeprefix(METRIC)):
        return Column(name=name, title=metric, form="number", value=lambda job: job.job.latest_metrics.get(metric))
    if name.startswith(PARAMETER) and (parameter := name.removeprefix(PARAMETER)):
        return Column(
            name=name, title=parameter, value=lambda job: _parameters(job).get(parameter, _at(job, parameter))
        )
    raise InvalidRequest(
        f"no column {name[:64]}{did_you_mean(name, NAMED)}; metrics are metric:NAME, hyperparameters parameter:NAME",
        field="column",
    )


def _parameters(job: JobDetails) -> Mapping[str, Any]:
    found = job.stored.get("training_config", {}).get("hyperparameters")
    return dict(_set(found)) if isinstance(found, Mapping) else {}


def _set(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Those that are values of their own, not sections."""
    return ((name, value) for name, value in values.items() if not isinstance(value, Mapping | list) and value != "")


def _at(job: JobDetails, path: str) -> object:
    """A field of the document by its dotted path; None where there is none."""
    here: Any = job.stored
    for name in path.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    return None if isinstance(here, Mapping | list) else here
