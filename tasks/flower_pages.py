"""Flower's own pages, made to know jobs: their states, and a button that cancels one which has not ended.

Flower offers "Terminate" for Celery's STARTED alone, and filters by Celery's states; a job is QUEUED or TRAINING.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flower.views.monitor import Metrics
from tornado.template import Loader, Template
from tornado.web import authenticated

ENDED = ("CANCELLED", "PREEMPTED", "SUCCESS", "FAILURE", "REVOKED")
AT_WORK = ("STARTED", "PREPARING", "TRAINING", "CHECKPOINTING", "EVALUATING", "EXPORTING")
_BUTTON = '\n      <button class="btn btn-danger" id="task-terminate">'
_TERMINATE = f'if task.state == "STARTED" %}}{_BUTTON}Terminate</button>'
_CANCEL = f'if task.uuid.startswith("job-") and task.state not in {ENDED} %}}{_BUTTON}Cancel job</button>'
_BADGE = '%}\n          <span class="badge task-state-started">'
_FILTER = '<button class="task-state-filter" type="button" data-task-state="{0}" aria-pressed="false">{1}</button>'
# Template → (what stands in it, what shall stand there instead).
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "task.html": (
        ("{% " + _TERMINATE, "{% " + _CANCEL + "\n      {% el" + _TERMINATE),
        ('{% elif task.state == "STARTED" ' + _BADGE, f"{{% elif task.state in {AT_WORK} " + _BADGE),
    ),
    "tasks.html": (
        (_FILTER.format("STARTED", "Started"), _FILTER.format("TRAINING", "Training")),
        (_FILTER.format("RETRY", "Retried"), _FILTER.format("QUEUED", "Queued")),
    ),
}


class JobPages(Loader):
    """Flower's templates with the changes; what another Flower words differently stays as it is there."""

    def _create_template(self, name: str) -> Template:
        return Template(changed(name, Path(self.root, name).read_text(encoding="utf-8")), name=name, loader=self)


def changed(name: str, text: str) -> str:
    """A template of that name with its changes."""
    for before, after in CHANGES.get(name, ()):
        text = text.replace(before, after)
    return text


class GuardedMetrics(Metrics):
    """Flower shows its metrics to everybody; they name every project's jobs."""

    @authenticated
    async def get(self) -> None:
        await super().get()


def guarded(handlers: Iterable[Any]) -> list[Any]:
    """Flower's table of handlers, with the login asked for in front of its metrics."""
    return [("/metrics", GuardedMetrics) if one == ("/metrics", Metrics) else one for one in handlers]
