"""Rules of planned evaluations as the jobs that they become: what a submission of each would refuse."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.errors import InvalidRequest
from app.domain.evaluations import planned
from app.domain.spec.defaults import completed
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import END, JobDocument
from app.domain.spec.rules.evaluations import FIELD
from app.domain.spec.rules.job import check

_SOURCE = re.compile(r"data_config\.sources\.(\d+)(.*)")
_BENCHMARK = "inference.benchmarks."
_RESOURCES = "resource_config."
_LATER = "later"  # stands for the IDs of job and checkpoint, which don't exist yet


def planned_documents(trained: JobDocument, rules: ReadingRules) -> list[JobDocument]:
    """The document of each evaluation that a checked document plans, in order.

    Raises InvalidRequest for the first rule that one of them breaks, with the field of the plan.
    """
    found = []
    for number, plan in enumerate(trained.training_config.evaluations):
        checkpoint_id, step = (None, None) if plan.on == END else (_LATER, 0)
        made = completed(planned.evaluation(plan, trained, job_id=_LATER, checkpoint_id=checkpoint_id, step=step))
        with _named_as_planned(made, f"{FIELD}.{number}"):
            check(made, rules)
        found.append(made)
    return found


@contextmanager
def _named_as_planned(made: JobDocument, plan: str) -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        error.field = f"{plan}{_within_plan(error.field or '', made)}"
        raise


def _within_plan(field: str, made: JobDocument) -> str:
    if field.startswith(_RESOURCES):
        return f".{field}"
    if field.startswith(_BENCHMARK):
        return f".{field.removeprefix('inference.')}"
    source = _SOURCE.fullmatch(field)
    if source is None or made.inference is None:
        return ""
    users = (i for i, each in enumerate(made.inference.benchmarks) if each.dataset == int(source[1]))
    return f".benchmarks.{next(users, 0)}.dataset{source[2]}"
