"""Documents of sweeps, and the bodies and queries of requests about them."""

from typing import Any

from marshmallow import Schema, ValidationError, fields, post_load, validate

from app.domain.errors import ERROR_TYPES
from app.domain.names import MOST_LABELS
from app.domain.sweeps.observations import OWN_FAULTS
from app.domain.sweeps.results import is_select
from app.domain.sweeps.space import MAX_PARAMETERS
from app.domain.sweeps.spec import (
    AVG_BEST_IDX,
    EARLY_STOPPING,
    FREE,
    MAX_METRIC,
    MAX_OBJECTIVES,
    MAX_PARALLEL,
    MAX_SEED,
    MAX_TRIALS,
    METHODS,
    PAUSE,
    POPULATION,
    RESTARTS,
    SHRINK_COEF,
    SIGMA0,
    STARTUP_TRIALS,
    STOP,
    UNITS,
    SweepSpec,
)
from app.domain.sweeps.states import SweepState, TrialState
from app.schemas.documents import DocumentSchema
from app.schemas.jobs import display_name, label_map
from app.schemas.queries import ListQuerySchema, OrderBy, QueryFlag, QueryMoment, QueryTexts, QueryWhole, one_of
from app.schemas.strict_fields import Choice, Flag, FreeObject, Number, SectionField, Text, TextMap, Whole, says

LARGEST_INT = 2**31 - 1
_HUGE = 1e300  # JSON has no infinity


def _labels(**more: Any) -> TextMap:
    """As of a job, with room for the two that each trial has besides."""
    return label_map(most=MOST_LABELS - 2, **more)


def _metric() -> Text:
    return Text(
        longest=MAX_METRIC,
        shortest=1,
        required=True,
        **says(
            "A metric that trials report, report.FIELD of their reports, or benchmark:NAME/METRIC of their evaluations"
        ),
    )


def _select(default: str) -> Text:
    return _Select(longest=10, load_default=default, **says("Of its values: best, last, or mean:N of the last N"))


class _Select(Text):
    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401 – as marshmallow's
        found: str = super()._deserialize(value, *args, **kwargs)
        if not is_select(found):
            raise ValidationError("must be best, last or mean:N with N from 1 to 10000")
        return found


class ObjectiveSchema(DocumentSchema):
    metric = _metric()
    goal = Choice(("minimize", "maximize"), **says("Default by the metric where its meaning is known, such as a loss"))
    select = _select("best")


class ConstraintSchema(DocumentSchema):
    metric = _metric()
    at_most = Number(-_HUGE, _HUGE, **says("One of at_most and at_least"))
    at_least = Number(-_HUGE, _HUGE, **says("One of at_most and at_least"))
    select = _select("last")


class Objectives(fields.Field[list[dict[str, Any]]]):
    """One objective, or a list of several."""

    def __init__(self, **kwargs: Any) -> None:
        one = {
            "type": "object",
            "properties": {
                "metric": {"type": "string", "minLength": 1, "maxLength": MAX_METRIC},
                "goal": {"enum": ["minimize", "maximize"]},
                "select": {"type": "string"},
            },
            "required": ["metric"],
        }
        several = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_OBJECTIVES}
        meaning = f"What counts; several (up to {MAX_OBJECTIVES}) have a Pareto front in place of a best trial"
        super().__init__(metadata={"oneOf": [one, several], "description": meaning}, **kwargs)
        self._one = ObjectiveSchema()

    def _deserialize(self, value: object, *_: Any, **__: Any) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            return [self._one.load(value)]
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_OBJECTIVES:
            raise ValidationError(f"must be an objective, or a list of 1 to {MAX_OBJECTIVES}")
        return [self._one.load(each) for each in value]


class ParallelField(fields.Field[int | str]):
    """A number of trials, or the word free."""

    def __init__(self, **kwargs: Any) -> None:
        number = {"type": "integer", "minimum": 1, "maximum": MAX_PARALLEL}
        meaning = f"Most trials at a time; {FREE}: as many as can start without delaying another job, at least one"
        super().__init__(metadata={"oneOf": [number, {"const": FREE}], "description": meaning}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> int | str:
        if value == FREE and isinstance(value, str):
            return value
        if type(value) is not int or not 1 <= value <= MAX_PARALLEL:
            raise ValidationError(f"must be a whole number from 1 to {MAX_PARALLEL}, or {FREE}")
        return value


class MethodSchema(DocumentSchema):
    name = Choice(METHODS, load_default="tpe", **says("How the next values are chosen"))
    seed = Whole(0, MAX_SEED, load_default=0, **says("Equal seeds and reports give equal suggestions"))
    order = Choice(
        ("natural", "shuffled"),
        load_default="shuffled",
        **says("grid: the order of its points; natural: the last parameter by name changes first"),
    )
    startup_trials = Whole(
        *STARTUP_TRIALS,
        load_default=10,
        **says("tpe, gp: random trials before the model is asked; bohb: values that a rung needs"),
    )
    sigma0 = Number(*SIGMA0, **says("cmaes: the first step size, as a share of the space; default one sixth"))
    restarts = Whole(*RESTARTS, load_default=0, **says("cmaes: restarts with a population of double the size"))
    population = Whole(*POPULATION, load_default=50, **says("nsga2: trials of a generation; pbt: its members"))
    interval = Whole(
        1, LARGEST_INT, **says("pbt, required: optimizer steps between halts, at which trials are compared")
    )
    explore = Choice(
        ("perturb", "resample"),
        load_default="perturb",
        **says("pbt: values of a fork: its parent's times 0.8 or 1.2, or drawn anew"),
    )
    avg_best_idx = Number(*AVG_BEST_IDX, load_default=2.0, **says("anneal: mean rank of the trial to start from"))
    shrink_coef = Number(*SHRINK_COEF, load_default=0.1, **says("anneal: how fast the neighbourhood shrinks"))


class ForkMethodSchema(MethodSchema):
    seed = Whole(0, MAX_SEED, **says("Default: one more than that of the sweep, so that no draw is repeated"))


class EarlyStoppingSchema(DocumentSchema):
    name = Choice(EARLY_STOPPING, load_default="none", **says("Which trials are stopped at rungs"))
    unit = Choice(UNITS, load_default="steps", **says("Of min and max; tokens: those of all ranks, without padding"))
    min = Whole(1, LARGEST_INT, **says("The first rung; required but for none"))
    max = Whole(1, LARGEST_INT, **says("The last rung; required but for none"))
    reduction = Whole(2, 100, load_default=3, **says("Rungs are min × reductionᵏ; asha keeps one of so many trials"))
    patience = Whole(1, 10_000, load_default=3, **says("patience: stop after so many reports without a better one"))
    startup_trials = Whole(1, MAX_TRIALS, load_default=5, **says("median: reports at a rung before it stops any trial"))
    losers = Choice(
        (STOP, PAUSE),
        load_default=STOP,
        **says(
            "stop: trials train on while they are compared; pause: each halts at its rungs, and winners are resumed"
        ),
    )


_RUNNING = says("Trials that run when the budget is used up: finish, or cancel, by which what they measured counts")


def _bounds(**more: Any) -> tuple[fields.Field[Any], ...]:
    """What bounds a sweep: max_trials, max_device_hours, max_seconds, target, patience."""
    trials = "Most trials, also failed ones; required for all methods but grid without another bound"
    patience = "No new trial after so many completed ones without a better one"
    return (
        Whole(1, MAX_TRIALS, **says(trials), **more),
        Number(0.0001, 1e9, **says("Devices × hours of all attempts"), **more),
        Number(1, 1e9, **says("Since the first trial"), **more),
        Number(-_HUGE, _HUGE, **says("No new trial once one is this good"), **more),
        Whole(1, MAX_TRIALS, **says(patience), **more),
    )


class BudgetSchema(DocumentSchema):
    max_trials, max_device_hours, max_seconds, target, patience = _bounds()
    parallel_trials = ParallelField(load_default=1)
    running = Choice(("finish", "cancel"), load_default="finish", **_RUNNING)


class ChangeBudgetSchema(Schema):
    """Omitted fields are unchanged; null removes a bound."""

    max_trials, max_device_hours, max_seconds, target, patience = _bounds(allow_none=True)
    parallel_trials = ParallelField()
    running = Choice(("finish", "cancel"), **_RUNNING)


class FailedTrialsSchema(DocumentSchema):
    max_failed = Number(
        0, MAX_TRIALS, **says("Trials that may fail, below 1 as a share of max_trials; default a third, at least 3")
    )
    penalize = Flag(
        load_default=True, **says("For the method a trial that failed by one of causes has the worst value seen")
    )
    causes = fields.List(
        Text(longest=32, shortest=1),
        load_default=lambda: [*OWN_FAULTS],
        validate=validate.Length(max=len(ERROR_TYPES)),
        **says(f"Error types of trials that are penalized; default {', '.join(OWN_FAULTS)}"),
    )


class WarmStartSchema(DocumentSchema):
    sweeps = fields.List(
        Text(longest=64, shortest=1),
        load_default=list,
        validate=validate.Length(max=20),
        **says("Earlier sweeps of the project with the same objective"),
    )
    kind = Choice(
        ("results", "transfer"),
        load_default="results",
        **says(
            "results: of the same job and space, known to the method from the start; transfer: their best values "
            "are tried first, whatever differs"
        ),
    )
    count = Flag(load_default=False, **says("results: one of them may be the best of this sweep"))


class KeepSchema(DocumentSchema):
    checkpoints_of_best = Whole(
        0, 1000, load_default=3, **says("Trials whose checkpoints stay when the sweep has ended")
    )


def _section(schema: type[Schema], meaning: str) -> SectionField:
    """An object of which every field has a default."""
    return SectionField(schema, load_default=lambda: schema().load({}), **says(meaning))


class CreateSweepSchema(DocumentSchema):
    name = display_name("Trials are named NAME-0, NAME-1 …", required=True)
    labels = _labels(load_default=dict, **says("Of the sweep and its trials"))
    job = FreeObject(required=True, **says("A job document as of POST /v1/jobs, without its name and what varies"))
    parameters = FreeObject(
        most=MAX_PARAMETERS,
        required=True,
        **says(
            "Name of a hyperparameter, dotted path of a field, or environment.NAME → what it may be: type (int, "
            "double, categorical, bool), min, max, step, scale (linear, log), values, only_if; or a constant"
        ),
    )
    require = fields.List(
        Text(longest=500, shortest=1),
        load_default=list,
        validate=validate.Length(max=64),
        **says("Comparisons of + - * / over names and numbers that all values must meet"),
    )
    objective = Objectives(required=True)
    constraints = fields.List(
        fields.Nested(ConstraintSchema), load_default=list, validate=validate.Length(max=16), **says("Of the results")
    )
    method = _section(MethodSchema, "How the values of the next trial are chosen")
    early_stopping = _section(EarlyStoppingSchema, "When trials are compared, and which are stopped")
    budget = SectionField(
        BudgetSchema, required=True, **says("What the sweep may use, and how many trials run at a time")
    )
    on_failed_trials = _section(FailedTrialsSchema, "How many trials may fail before the sweep does")
    warm_start = _section(WarmStartSchema, "Earlier sweeps that this one begins with")
    enqueue = fields.List(
        FreeObject(most=MAX_PARAMETERS),
        load_default=list,
        validate=validate.Length(max=1000),
        **says("Sets of values to begin with"),
    )
    keep = _section(KeepSchema, "What stays after the end")
    share_trunks = Flag(
        **says(
            "Trials whose documents differ only from a later step on begin with each other's checkpoints; default: "
            "where the framework resumes exactly"
        )
    )
    verify_trunks = Whole(
        0, MAX_TRIALS, load_default=0, **says("Forks that are also trained from the start, to compare the weights")
    )
    deterministic = Flag(load_default=False, **says("Two runs of one document try the same values, in generations"))

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> SweepSpec:
        return SweepSpec.from_json(values)


class ChangeSweepSchema(DocumentSchema):
    """At least one field is required."""

    budget = SectionField(
        ChangeBudgetSchema,
        **says("Parts to change, null removes a bound; more than before lets a completed sweep continue"),
    )
    priority = Whole(0, 10, **says("Of further trials"))
    labels = _labels(**says("Replaces all labels of the sweep; those of its trials stay"))


class ForkSweepSchema(DocumentSchema):
    """What is not given is as in the sweep that is forked."""

    name = display_name("Default: the name and -fork")
    labels = _labels()
    parameters = FreeObject(most=MAX_PARAMETERS, **says("Must contain the values of every trial so far"))
    require = fields.List(Text(longest=500, shortest=1), validate=validate.Length(max=64))
    method = SectionField(ForkMethodSchema)
    early_stopping = SectionField(EarlyStoppingSchema)
    budget = SectionField(ChangeBudgetSchema, **says("Parts that differ; null removes a bound"))


class SweepQuerySchema(ListQuerySchema):
    """``labels.<key>=<value>`` filters are collected beforehand and passed as ``labels``."""

    order_by = OrderBy("created_at", "name", "status")
    status = QueryTexts(one_of(tuple(SweepState)))
    project = Text(longest=63)
    name = Text(longest=128)
    created_after = QueryMoment()
    created_before = QueryMoment()
    created_by = Text(longest=64, **says("The id of the key that created it; `me` is the caller's own"))
    labels = fields.List(fields.Tuple((fields.String(), fields.String())), load_default=list)
    handle = Text(
        longest=128,
        **says("A sweep's id, its whole name, or, where none is named so, the end of its id, 4 characters or more"),
    )


class TrialQuerySchema(ListQuerySchema):
    order_by = OrderBy("number", "state", "value", default="number")
    state = QueryTexts(one_of(tuple(TrialState)))


class BestQuerySchema(Schema):
    top = QueryWhole(1, 100, load_default=1, **says("Number of trials; of several objectives the whole front up to it"))
    document = QueryFlag(
        load_default=False,
        **says("With the job document of each, ready to be submitted once its masked secrets are filled in"),
    )


class ReplayQuerySchema(Schema):
    first = QueryWhole(
        0,
        MAX_TRIALS,
        data_key="from",
        **says("Number of the first trial; alone: as many as one request computes in about 10 s"),
    )
    last = QueryWhole(0, MAX_TRIALS, data_key="to", **says("Number of the last trial"))


class DeleteSweepQuerySchema(Schema):
    jobs = QueryFlag(
        load_default=False, **says("Also delete the jobs of its trials with their files: checkpoints, models, logs")
    )


class PauseSweepSchema(DocumentSchema):
    trials = Choice(
        ("pause", "finish"), load_default="pause", **says("What becomes of running trials: saved and paused, or run on")
    )


class CancelSweepSchema(DocumentSchema):
    reason = Text(longest=1000, load_default="")


class AddTrialSchema(DocumentSchema):
    values = FreeObject(
        most=MAX_PARAMETERS, required=True, **says("A value for every parameter that is active with them")
    )
