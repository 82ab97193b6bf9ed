"""Adapts Flower's pages to jobs: their states, and a button that cancels a job that has not ended.

Flower offers "Terminate" only for Celery's STARTED, and filters by Celery's states; a job is QUEUED or TRAINING.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flower.views.monitor import Metrics
from tornado.template import Loader, Template
from tornado.web import authenticated

ENDED = ("CANCELLED", "PREEMPTED", "SUCCESS", "FAILURE", "REVOKED")
RUNNING = ("STARTED", "PREPARING", "TRAINING", "CHECKPOINTING", "EVALUATING", "SERVING", "EXPORTING")
_BUTTON = '\n      <button class="btn btn-danger" id="task-terminate">'
_TERMINATE = f'if task.state == "STARTED" %}}{_BUTTON}Terminate</button>'
_CANCEL = f'if task.uuid.startswith("job-") and task.state not in {ENDED} %}}{_BUTTON}Cancel job</button>'
_BADGE = '%}\n          <span class="badge task-state-started">'
_FILTER = '<button class="task-state-filter" type="button" data-task-state="{0}" aria-pressed="false">{1}</button>'
# Template → (original text, replacement).
TEMPLATE_PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "task.html": (
        ("{% " + _TERMINATE, "{% " + _CANCEL + "\n      {% el" + _TERMINATE),
        ('{% elif task.state == "STARTED" ' + _BADGE, f"{{% elif task.state in {RUNNING} " + _BADGE),
    ),
    "tasks.html": (
        (_FILTER.format("STARTED", "Started"), _FILTER.format("TRAINING", "Training")),
        (_FILTER.format("RETRY", "Retried"), _FILTER.format("QUEUED", "Queued")),
    ),
}


class JobPages(Loader):
    """Flower's templates with the patches; text that another Flower version words differently stays unchanged."""

    def _create_template(self, name: str) -> Template:
        return Template(patched(name, Path(self.root, name).read_text(encoding="utf-8")), name=name, loader=self)


def patched(name: str, text: str) -> str:
    """The patched template."""
    for before, after in TEMPLATE_PATCHES.get(name, ()):
        text = text.replace(before, after)
    return text


class GuardedMetrics(Metrics):
    """Protects Flower's metrics, which name the jobs of every project and are public by default."""

    @authenticated
    async def get(self) -> None:
        await super().get()


def guarded(handlers: Iterable[Any]) -> list[Any]:
    """Flower's handler table, with a login in front of its metrics."""
    return [("/metrics", GuardedMetrics) if one == ("/metrics", Metrics) else one for one in handlers]
