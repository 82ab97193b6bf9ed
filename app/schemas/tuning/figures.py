"""Figures of sweeps on the wire."""

from marshmallow import Schema, fields, validate

from app.domain.sweeps.axes import Axis
from app.domain.sweeps.spec import EARLY_STOPPING
from app.schemas.queries import QueryTexts, QueryWhole
from app.schemas.strict_fields import AsStored, says
from app.services.sweeps.reading.figures import MOST_TRIALS

_MOST_POINTS = 2_000  # a picture would not show more
_LONGEST_METRIC, _LONGEST_NAME = 200, 200
_VALUE = {"type": ["number", "string", "boolean"]}
_VALUE_OR_NULL = {"type": ["number", "string", "boolean", "null"]}
_POSITIONS = {"type": "array", "items": {"type": ["number", "null"]}}


def _metric(meaning: str) -> fields.String:
    return fields.String(load_default="", validate=validate.Length(1, _LONGEST_METRIC), **says(meaning))


class ImportanceQuerySchema(Schema):
    objective = _metric("Metric of one of several objectives; default the way to their Pareto front")


class _PointsQuerySchema(Schema):
    max_points = QueryWhole(
        10, MOST_TRIALS, load_default=_MOST_POINTS, **says("Trials at most; extremes and the best are among them")
    )


class HistoryQuerySchema(_PointsQuerySchema):
    objective = _metric("Metric of one of several objectives; default the first")


class ParametersQuerySchema(HistoryQuerySchema):
    parameters = QueryTexts(
        fields.String(validate=validate.Length(1, _LONGEST_NAME)),
        load_default=list,
        **says("Names of the parameters to show, repeatable or separated by commas; default all"),
    )


class FrontQuerySchema(_PointsQuerySchema):
    x = _metric("Metric of the horizontal axis; default the first objective")
    y = _metric("Metric of the vertical axis; default the second objective")


class FigureObjectiveSchema(Schema):
    metric = fields.String()
    goal = fields.String(**says("minimize or maximize"))


class PointSchema(Schema):
    """A trial that has a value; of a stopped one that of its last report."""

    number = fields.Integer()
    state = fields.String(**says("COMPLETED or STOPPED"))
    value = fields.Float(**says("As measured"))
    is_feasible = fields.Boolean(**says("Breaks no constraint"))


class BestSoFarSchema(Schema):
    number = fields.Integer()
    value = fields.Float()


class _FigureSchema(Schema):
    objective = fields.Nested(FigureObjectiveSchema)
    measured = fields.Integer(**says("Trials with a value, also those that max_points leaves out"))


class HistorySchema(_FigureSchema):
    points = fields.List(fields.Nested(PointSchema), **says("By number"))
    best = fields.List(
        fields.Nested(BestSoFarSchema), **says("Trials that were the best when counted up to their number")
    )


class AxisSchema(Schema):
    name = fields.String()
    scale = fields.String(**says("linear, log, or listed: the values at equal distances"))
    min = fields.Method("_min", metadata={"type": ["number", "null"], "description": "null: listed"})
    max = fields.Method("_max", metadata={"type": ["number", "null"], "description": "null: listed"})
    values = AsStored({"type": "array", "items": _VALUE, "description": "If listed, from position 0 to position 1"})
    is_conditional = fields.Boolean(**says("Not active in all trials"))

    def _min(self, axis: Axis) -> float | None:
        return None if axis.scale == "listed" else axis.low

    def _max(self, axis: Axis) -> float | None:
        return None if axis.scale == "listed" else axis.high


class LineSchema(Schema):
    number = fields.Integer(attribute="point.number")
    state = fields.String(attribute="point.state", **says("COMPLETED or STOPPED"))
    value = fields.Float(attribute="point.value", **says("As measured"))
    is_feasible = fields.Boolean(attribute="point.is_feasible", **says("Breaks no constraint"))
    positions = AsStored({**_POSITIONS, "description": "0 to 1 on each axis; null: the parameter is not active"})


_BEST = says("Number of the best trial; null before one has completed without breaking a constraint")
_CONSTANTS = says("Parameters that do not vary, which have no axis")


class ParallelSchema(_FigureSchema):
    axes = fields.List(fields.Nested(AxisSchema), **says("Of each parameter that varies; the last is the objective's"))
    trials = fields.List(fields.Nested(LineSchema), attribute="lines", **says("By number"))
    best = fields.Integer(allow_none=True, **_BEST)
    constants = fields.List(fields.String(), **_CONSTANTS)


class SliceSchema(Schema):
    axis = fields.Nested(AxisSchema)
    values = AsStored(
        {"type": "array", "items": _VALUE_OR_NULL, "description": "One per trial; null: the parameter is not active"}
    )
    positions = AsStored({**_POSITIONS, "description": "0 to 1 on the axis, one per trial"})


class SlicesSchema(_FigureSchema):
    trials = fields.List(fields.Nested(PointSchema), attribute="points", **says("By number"))
    parameters = fields.List(fields.Nested(SliceSchema), attribute="slices")
    best = fields.Integer(allow_none=True, **_BEST)
    constants = fields.List(fields.String(), **_CONSTANTS)


class ParameterImportanceSchema(Schema):
    name = fields.String()
    importance = fields.Float(**says("A share of 1; all are 0 where no trial is better than another"))
    trials = fields.Integer(**says("Completed trials in which it was active"))
    is_constant = fields.Boolean()
    is_conditional = fields.Boolean(**says("Not active in all trials"))


class ImportanceSchema(Schema):
    """By PED-ANOVA: whether the best trials have other values than all completed ones."""

    objective = fields.Nested(
        FigureObjectiveSchema, allow_none=True, **says("null: the way to the Pareto front of several")
    )
    completed = fields.Integer(**says("Trials that were compared"))
    needed = fields.Integer(**says("Completed trials without which there are no parameters in the answer"))
    best = fields.Integer(**says("How many of them count as the best: a tenth, at least five"))
    parameters = fields.List(fields.Nested(ParameterImportanceSchema), **says("Most important first"))


class RungReportSchema(Schema):
    number = fields.Integer(**says("Of the trial"))
    value = fields.Float(allow_none=True, **says("null: not finite"))
    continues = fields.Boolean()
    rank = fields.Integer()
    compared = fields.Integer(**says("Reports that it was compared with, and its own"))


class RungSchema(Schema):
    rung = fields.Integer()
    trials = fields.Integer(**says("That have reported there"))
    continued = fields.Integer()
    is_last = fields.Boolean(**says("Trials are at their end there, so all continue"))
    best = fields.Float(allow_none=True)
    median = fields.Float(allow_none=True)
    reports = fields.List(
        fields.Nested(RungReportSchema), **says("By number; of very many trials those of every second, third …")
    )


class RungsSchema(Schema):
    objective = fields.Nested(FigureObjectiveSchema)
    early_stopping = fields.String(**says(", ".join(EARLY_STOPPING[1:])))
    unit = fields.String(**says("Of rungs: steps, epochs or tokens"))
    rungs = fields.List(fields.Nested(RungSchema))


class FrontPointSchema(Schema):
    number = fields.Integer()
    state = fields.String(**says("COMPLETED or STOPPED"))
    x = fields.Float(**says("As measured"))
    y = fields.Float(**says("As measured"))
    is_feasible = fields.Boolean(**says("Breaks no constraint"))
    is_best = fields.Boolean(**says("On the Pareto front of all objectives"))


class FrontSchema(Schema):
    x = fields.Nested(FigureObjectiveSchema)
    y = fields.Nested(FigureObjectiveSchema)
    objectives = fields.Integer(**says("That the sweep has; its front is that of all"))
    measured = fields.Integer(**says("Trials with values, also those that max_points leaves out"))
    points = fields.List(fields.Nested(FrontPointSchema), **says("By number"))
