"""Rules of a sweep's objectives and constraints: whether the job measures what they name."""

import math

from app.domain.errors import BadSpec
from app.domain.evaluations import open_metrics
from app.domain.spec import metrics
from app.domain.spec.data.splits import BadSplit
from app.domain.spec.document import evaluates, is_custom, method
from app.domain.spec.model import CHECKPOINT, JobDocument
from app.domain.spec.rules.evaluations import FIELD
from app.domain.spec.rules.output import best_metrics
from app.domain.suggestions import did_you_mean
from app.domain.sweeps import benchmarks
from app.domain.sweeps.results import MAX_MEAN, REPORT, is_select
from app.domain.sweeps.spec import MAX_METRIC, MAX_OBJECTIVES, SweepSpec

MAX_CONSTRAINTS = 16
# Numbers of a job's report.
OF_REPORTS = ("gpu_time_ms", "compute_time_ms", "average_gpu_util", "steps", "tokens", "attempts")
# What built-in trainers report beside the metrics of their training type.
OF_TRAINERS = (
    *("learning_rate", "grad_norm", "tokens", "step_seconds", "samples_per_second", "tokens_per_second"),
    *("rank_memory_mb_max", "slowest_rank_seconds", "fastest_rank_seconds"),
)


def check_objectives(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """``documents`` are those of trials at the ends of the space. Raises BadSpec."""
    objectives = spec.objectives
    if not 1 <= len(objectives) <= MAX_OBJECTIVES:
        raise BadSpec(f"has {len(objectives)} entries; name 1 to {MAX_OBJECTIVES} objectives", field="objective")
    if len({objective.metric for objective in objectives}) < len(objectives):
        raise BadSpec("names a metric twice; each objective has its own", field="objective")
    for i, objective in enumerate(objectives):
        field = f"objective.{i}" if len(objectives) > 1 else "objective"
        _metric_is_measured(objective.metric, documents, f"{field}.metric")
        _select_is_known(objective.select, f"{field}.select")
        if objective.goal not in ("minimize", "maximize"):
            raise BadSpec(
                f"is missing, and the name {objective.metric} does not say what is better; use minimize or maximize",
                field=f"{field}.goal",
            )


def check_constraints(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """Raises BadSpec."""
    if len(spec.constraints) > MAX_CONSTRAINTS:
        raise BadSpec(f"has {len(spec.constraints)} entries; {MAX_CONSTRAINTS} are allowed", field="constraints")
    for i, constraint in enumerate(spec.constraints):
        field = f"constraints.{i}"
        _metric_is_measured(constraint.metric, documents, f"{field}.metric")
        _select_is_known(constraint.select, f"{field}.select")
        bounds = [bound for bound in (constraint.at_least, constraint.at_most) if bound is not None]
        if not bounds:
            raise BadSpec("has no bound; give at_most or at_least", field=field)
        if not all(map(math.isfinite, bounds)) or bounds != sorted(bounds):
            raise BadSpec("must have finite bounds, at_least not above at_most", field=field)


def measured_on_the_way(metric: str, documents: list[JobDocument], *, field: str, asks: str) -> None:
    """That trials measure it while they train, because ``asks`` compares them then. Raises BadSpec."""
    if metric.startswith(REPORT):
        raise BadSpec(
            f"{asks} needs an objective that is measured while a trial trains, not one of its report", field=field
        )
    found = benchmarks.measured(metric)
    if found is None:
        return
    for document in documents:
        if not any(plan.on == CHECKPOINT for plan, _ in benchmarks.plans(document, found)):
            raise BadSpec(
                f"{asks} compares trials while they train, and {found.benchmark} is not measured then; set on to "
                f"{CHECKPOINT} in job.{FIELD}, or do without {asks}",
                field=field,
            )


def _metric_is_measured(metric: str, documents: list[JobDocument], field: str) -> None:
    if not 1 <= len(metric) <= MAX_METRIC:
        raise BadSpec(f"must be a name of 1 to {MAX_METRIC} characters", field=field)
    if not metric.isprintable():
        raise BadSpec("must be a name of printable characters", field=field)
    if metric.startswith(benchmarks.PREFIX):
        _evaluation_is_planned(metric, documents, field)
        return
    if metric.startswith(REPORT):
        if metric.removeprefix(REPORT) not in OF_REPORTS:
            known = ", ".join(REPORT + name for name in OF_REPORTS)
            raise BadSpec(f"no report has a number {metric!r}; known: {known}", field=field)
        return
    for document in documents:
        if not is_custom(document):
            _trainer_measures(metric, document, field)


def _evaluation_is_planned(metric: str, documents: list[JobDocument], field: str) -> None:
    found = benchmarks.measured(metric)
    if found is None:
        raise BadSpec("must be benchmark:NAME/METRIC, such as benchmark:choices/accuracy", field=field)
    for document in documents:
        names = [name for _, name in benchmarks.plans(document, found)]
        if not names:
            planned = ", ".join(dict.fromkeys(name for _, name in benchmarks.planned(document))) or "nothing"
            raise BadSpec(
                f"no evaluation of the trials measures {found.benchmark}: job.{FIELD} plans {planned}; add it there, "
                "or name a metric of the training",
                field=field,
            )
        kinds = benchmarks.kinds(document, found)
        if kinds and not any(open_metrics.metric_of(kind, found.metric) for kind in kinds):
            known = [each.name for each in kinds[0].metrics]
            listed = ", ".join(known) or "those of the task, by letters, digits and _.-"
            raise BadSpec(
                f"{names[0]} does not measure {found.metric!r}; known: {listed}{did_you_mean(found.metric, known)}",
                field=field,
            )


def _trainer_measures(metric: str, document: JobDocument, field: str) -> None:
    type_ = document.training_config.training_type
    of_ppo = metrics.OF_PPO if type_ == "RLHF" else ()
    known = (*best_metrics(method(document)), *of_ppo, *OF_TRAINERS)
    if metric not in known:
        raise BadSpec(
            f"{type_} does not measure {metric!r}; known: {', '.join(known)}{did_you_mean(metric, known)}", field=field
        )
    if metric.startswith(metrics.EVAL_PREFIX) and not _evaluates(document):
        raise BadSpec(
            f"{metric} is a metric of the evaluation; set job.data_config.validation_split above 0 or give a source "
            "with split validation, and leave evaluation on, or choose a training metric such as loss",
            field=field,
        )


def _evaluates(document: JobDocument) -> bool:
    try:
        return evaluates(document)
    except BadSplit as error:
        raise BadSpec(str(error), field="job.data_config.sources") from error


def _select_is_known(select: str, field: str) -> None:
    if not is_select(select):
        raise BadSpec(f"{select!r:.80} must be best, last, or mean:N with N from 1 to {MAX_MEAN}", field=field)
