"""Sweeps and trials as the API shows them."""

from typing import Any

from marshmallow import Schema, fields

from app.domain.sweeps.states import SweepState, TrialState
from app.schemas.results.artifacts import ArtifactSchema
from app.schemas.results.reports import TrainingReportSchema
from app.schemas.strict_fields import AsStored, Moment, says

_VALUE = {"type": ["number", "string", "boolean"]}
_VALUES = {"type": "object", "additionalProperties": _VALUE}
_ORIGIN = {
    "type": ["object", "null"],
    "properties": {"sweep_id": {"type": "string"}, "number": {"type": "integer"}},
    "description": "Of an earlier result, whose number is below 0: its sweep, and its number there; null: of a trial",
}


class TrialReportSchema(Schema):
    rung = fields.Integer()
    value = fields.Float(allow_none=True, **says("null: not finite"))
    continues = fields.Boolean()
    is_decided = fields.Method(
        "_is_decided",
        metadata={"type": "boolean", "description": "false: the trial has halted and waits for a decision"},
    )
    rank = fields.Integer()
    compared = fields.Integer(**says("Reports that it was compared with, and its own"))
    at = Moment()

    def _is_decided(self, report: Any) -> bool:  # noqa: ANN401 – a row of TrialReport
        return report.decided_seq is not None


class AwaitedEvaluationSchema(Schema):
    evaluation_id = fields.String(attribute="id")
    status = fields.String()


class TrialSchema(Schema):
    number = fields.Integer(attribute="trial.number")
    job_id = fields.String(attribute="trial.job_id", allow_none=True)
    state = fields.String(attribute="trial.state", **says(", ".join(TrialState)))
    reason = fields.String(attribute="trial.reason")
    values = AsStored(_VALUES, attribute="trial.values")
    objectives = AsStored(
        {"type": ["array", "null"], "items": {"type": "number"}, "description": "As measured, in the sweep's order"},
        attribute="trial.objectives",
    )
    is_feasible = fields.Method("_is_feasible", metadata={"type": "boolean"})
    job_status = fields.Method("_job_status", metadata={"type": ["string", "null"]})
    waits_for = fields.List(
        fields.Nested(AwaitedEvaluationSchema),
        **says("Evaluations that have not ended: the training has, and its result needs them"),
    )
    step = fields.Method("_step", metadata={"type": "integer"})
    total_steps = fields.Method("_total_steps", metadata={"type": ["integer", "null"]})
    source = fields.String(
        attribute="trial.source", **says("method, enqueued, added or exploited; earlier: of another sweep")
    )
    note = fields.String(attribute="trial.note", **says("Of the method, about these values"))
    forked_from = fields.Integer(
        attribute="trial.parent_number", allow_none=True, **says("The trial whose checkpoint it began with")
    )
    steps_saved = fields.Integer(attribute="trial.fork_step", **says("Steps that the other trial had made for it"))
    bracket = fields.Integer(attribute="trial.bracket")
    promoted = fields.Boolean(attribute="trial.promoted", **says("Exempt from early stopping"))
    error_type = fields.String(attribute="trial.error_type", allow_none=True)
    reports = fields.List(fields.Nested(TrialReportSchema))
    device_seconds = fields.Float(attribute="trial.device_seconds")
    seed = fields.Integer(attribute="trial.seed")
    seen_seq = fields.Integer(attribute="trial.seen_seq", **says("What its suggestion knew: reports up to this number"))
    created_at = Moment(attribute="trial.created_at")
    finished_at = Moment(attribute="trial.finished_at", allow_none=True)

    def _is_feasible(self, details: Any) -> bool:  # noqa: ANN401 – of listing.TrialDetails
        return not any(each > 0 for each in details.trial.violations)

    def _job_status(self, details: Any) -> str | None:  # noqa: ANN401 – as above
        return details.job.status if details.job is not None else None

    def _step(self, details: Any) -> int:  # noqa: ANN401 – as above
        is_running = details.trial.state == TrialState.RUNNING and details.job is not None
        return int(details.job.current_step if is_running else details.trial.step)

    def _total_steps(self, details: Any) -> int | None:  # noqa: ANN401 – as above
        return details.job.total_steps if details.job is not None else None


def _origin(details: Any) -> dict[str, Any] | None:  # noqa: ANN401 – of best.BestTrial, or of listing.SweepDetails
    found = details.origin
    return {"sweep_id": found.sweep_id, "number": found.number} if found is not None else None


class BestSchema(TrialSchema):
    """A trial, or with `warm_start.count` an earlier result, which has no reports and took no device seconds here."""

    earlier = fields.Function(_origin, metadata=_ORIGIN)
    document = AsStored({"type": ["object", "null"], "description": "null unless asked for"}, attribute="document")
    report = fields.Nested(
        TrainingReportSchema, allow_none=True, **says("Of its job; null: it has not ended, or was deleted")
    )
    artifacts = fields.List(fields.Nested(ArtifactSchema), **says("The files of its job's model"))


class ForecastSchema(Schema):
    """What one more device hour is likely to bring."""

    expected_best_after_an_hour = fields.Float()
    expected_improvement = fields.Float(**says("Of the objective; 0 or more"))
    trials = fields.Float(**says("That complete in a device hour, by the pace so far"))


class SweepSchema(Schema):
    """The sweep with every default, its state, and what it has used and found.

    The job of its document lacks what every trial replaces.
    """

    sweep_id = fields.String(attribute="sweep.id")
    name = fields.String(attribute="sweep.name")
    labels = AsStored({"type": "object", "additionalProperties": {"type": "string"}}, attribute="sweep.labels")
    project = fields.String(attribute="sweep.project")
    created_by = fields.String(attribute="sweep.created_by", **says("The id of the key that made it"))
    created_by_name = fields.String(
        **says("The name of that key; empty if it has none, `administrator` for a super admin's")
    )
    status = fields.String(attribute="sweep.status", **says(", ".join(SweepState)))
    status_reason = fields.String(attribute="sweep.status_reason")
    pending_reason = fields.String(attribute="sweep.pending_reason", **says("Why there is no further trial yet"))
    document = AsStored({"type": "object"}, attribute="sweep.spec")
    trials = fields.Integer(attribute="used.trials", **says("Made so far"))
    trials_by_state = AsStored(
        {"type": "object", "additionalProperties": {"type": "integer"}}, attribute="used.by_state"
    )
    device_hours = fields.Method("_device_hours", metadata={"type": "number"})
    elapsed_seconds = fields.Float(attribute="used.seconds")
    eta_seconds = fields.Float(allow_none=True, **says("Until max_trials have ended, by the pace so far"))
    forecast = fields.Nested(
        ForecastSchema, allow_none=True, **says("Null in lists, and as long as too few trials have completed")
    )
    best = fields.Method("_best", metadata={"type": ["object", "null"]})
    created_at = Moment(attribute="sweep.created_at")
    started_at = Moment(attribute="sweep.started_at", allow_none=True)
    finished_at = Moment(attribute="sweep.finished_at", allow_none=True)
    version = fields.Integer(attribute="sweep.version")

    def _device_hours(self, details: Any) -> float:  # noqa: ANN401 – of listing.SweepDetails
        return float(round(details.used.device_seconds / 3600, 6))

    def _best(self, details: Any) -> dict[str, Any] | None:  # noqa: ANN401 – as above
        best = details.best
        if best is None:
            return None
        shown = ("number", "job_id", "values", "objectives")
        return {**{name: getattr(best, name) for name in shown}, "earlier": _origin(details)}


class CreatedSweepSchema(Schema):
    sweep_id = fields.String()
    status = fields.String()
    message = fields.String()
    warnings = fields.List(fields.String(), **says("What has no effect, each with the reason"))


class DeletedSweepSchema(Schema):
    sweep_id = fields.String()
    jobs = fields.Integer(**says("Jobs of its trials that are deleted with it"))
    jobs_left = fields.Integer(**says("Of those, jobs that are still there: a coordinator deletes them"))


class SweepPlanSchema(Schema):
    """The answer to a dry run."""

    valid = fields.Boolean()
    grid_size = fields.Integer(allow_none=True, **says("Points of the grid; null: a parameter is continuous"))
    device_hours_at_most = fields.Float(
        allow_none=True,
        **says(
            "The least of max_device_hours, trials × max_runtime_seconds and parallel_trials × max_seconds that the "
            "document has; null: it has none. Trials that run when the budget is used up may end later"
        ),
    )
    rungs = AsStored(
        {
            "type": "array",
            "items": {"type": "object", "properties": {"rung": {"type": "integer"}, "trials": {"type": "number"}}},
            "description": "Each rung with the number of trials expected to reach it",
        }
    )
    suggestions = AsStored({"type": "array", "items": _VALUES, "description": "The first, up to five"})
    trunks = AsStored(
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "integer"} for name in ("trial", "forked_from", "step")},
            },
            "description": "Of the first trials whose values are known, those that begin with another one's checkpoint",
        }
    )
    warnings = fields.List(fields.String())


class BestAnswerSchema(Schema):
    trials = fields.List(fields.Nested(BestSchema))


class ReplayDifferenceSchema(Schema):
    what = fields.String(**says("suggestion or decision"))
    number = fields.Integer()
    rung = fields.Integer(allow_none=True)
    stored = AsStored({})
    replayed = AsStored({})


class ReplaySchema(Schema):
    is_equal = fields.Boolean()
    suggestions = fields.Integer(**says("Suggestions that were computed again"))
    decisions = fields.Integer(**says("Decisions at rungs that were made again"))
    differences = fields.List(fields.Nested(ReplayDifferenceSchema))
    first = fields.Integer(attribute="numbers.start", data_key="from", **says("Number of the first trial"))
    to = fields.Function(
        lambda found: found.numbers.stop - 1 if found.numbers else None,
        metadata={"type": ["integer", "null"], "description": "Number of the last trial; null: the sweep has none"},
    )
    next_from = fields.Integer(
        attribute="next_number", allow_none=True, **says("First trial of the next part; null: that was all")
    )
