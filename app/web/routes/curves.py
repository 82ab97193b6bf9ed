"""A job's curves: the page, and its data as JSON for drawing and as CSV."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from flask import Blueprint, Response
from marshmallow import fields, validate

from app.domain.downsampling import FEWEST
from app.domain.metric_groups import Group
from app.http.context import caller, plane
from app.http.csv_tables import CSV, table_of
from app.http.envelope import json_response
from app.http.operation import operation
from app.schemas.queries import QueryTexts, QueryWhole
from app.schemas.results.metrics import MOST_POINTS, StepsQuerySchema
from app.schemas.strict_fields import on_the_wire
from app.security.permissions import Permission
from app.services.attempts import checkpoints
from app.services.jobs import history, lookup
from app.services.telemetry import curves as curves_of
from app.services.telemetry.curves import Curves, CurvesRequest
from app.services.telemetry.stored_metrics import SeriesPoint
from app.web.job_frame import find_job, job_page

blueprint = Blueprint("web_curves", __name__)
MOST_DRAWN = 1000  # points of one curve: more than a screen has columns for
MOST_NAMES = 60
MOST_MARKS = 100
TITLES = {"train": "Training", "eval": "Evaluation", "system": "Speed and system"}


class Names(QueryTexts):
    """A repeatable parameter whose values may have commas in them."""

    def _deserialize(
        self, value: Sequence[str], attr: str | None, data: Mapping[str, Any] | None, **_: Any
    ) -> list[Any]:
        return fields.List._deserialize(self, value, attr, data)  # noqa: SLF001 – without the splitting of its parent


class CurvesPageQuerySchema(StepsQuerySchema):
    """What is set on the page, which its script keeps in the URL."""

    x = fields.String(load_default="step")
    smooth = fields.String(load_default="")
    log = fields.String(load_default="")
    find = fields.String(load_default="")


class CurvesQuerySchema(StepsQuerySchema):
    names = Names(fields.String(), load_default=list, validate=validate.Length(max=MOST_NAMES))
    max_points = QueryWhole(FEWEST, MOST_DRAWN, load_default=MOST_DRAWN)


class CurvesFileQuerySchema(StepsQuerySchema):
    names = Names(fields.String(), required=True, validate=validate.Length(max=MOST_NAMES))


class CheckpointRow(Protocol):
    """A stored checkpoint, as far as it is marked."""

    step: int
    created_at: datetime
    is_best: bool


class AttemptRow(Protocol):
    number: int
    start_step: int
    started_at: datetime | None


@dataclass(frozen=True)
class _Row:
    metric: str
    step: int
    at: str
    value: float


@blueprint.get("/jobs/<job_id>/curves")
@operation("Show the curves of a job", permission=Permission.VIEW, query=CurvesPageQuerySchema, media="html")
def curves(job_id: str, query: dict[str, Any]) -> Response:  # noqa: ARG001 – the script reads it
    job = find_job(job_id)
    return job_page("job/curves.html", job, "curves", groups=groups_of(job_id), titles=TITLES)


@blueprint.get("/jobs/<job_id>/curves.json")
@operation("Get curves of a job to draw", permission=Permission.VIEW, query=CurvesQuerySchema)
def curves_data(job_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        job = lookup.find(session, caller(), job_id)
        groups = curves_of.groups_of(session, job_id)
        found = curves_of.curves(session, job, CurvesRequest(**query))
        saved = checkpoints.list_for(session, job_id)
        attempts = history.attempts(session, job_id)
    return json_response({"groups": groups, **_drawn(found), **_marks(saved, attempts)})


@blueprint.get("/jobs/<job_id>/curves.csv")
@operation("Get curves of a job as CSV", permission=Permission.VIEW, query=CurvesFileQuerySchema, media="bytes")
def curves_file(job_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        job = lookup.find(session, caller(), job_id)
        found = curves_of.points(session, job, CurvesRequest(**query, max_points=MOST_POINTS))
    rows = [_Row(name, p.step, on_the_wire(p.at), p.value) for name, points in found.items() for p in points]
    response = Response(table_of(rows, ("metric", "step", "at", "value")), mimetype=CSV)
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}-metrics.csv"'
    return response


def groups_of(job_id: str) -> dict[Group, list[str]]:
    """The names of a job's curves by group, for a page that has them."""
    with plane().db.read() as session:
        lookup.find(session, caller(), job_id)
        return curves_of.groups_of(session, job_id)


def _drawn(found: Curves) -> dict[str, Any]:
    """Columns, which are a third of the size of rows. Times are seconds; what is no number is null and counted."""
    return {
        "series": {name: _columns(points) for name, points in found.series.items()},
        "epochs": found.epochs,
        "tokens": found.tokens,
        "ended": found.has_ended,
    }


def _marks(saved: Sequence[CheckpointRow], attempts: Sequence[AttemptRow]) -> dict[str, Any]:
    """The newest ones of each kind."""
    started = [(each, each.started_at) for each in attempts if each.started_at is not None]
    newest = sorted(saved, key=lambda each: each.created_at)[-MOST_MARKS:]
    return {
        "checkpoints": [{"step": c.step, "at": _seconds(c.created_at), "best": c.is_best} for c in newest],
        "attempts": [{"number": a.number, "step": a.start_step, "at": _seconds(at)} for a, at in started[-MOST_MARKS:]],
    }


def _columns(points: Sequence[SeriesPoint]) -> dict[str, Any]:
    lost = [point for point in points if not math.isfinite(point.value)]
    return {
        "steps": [point.step for point in points],
        "at": [_seconds(point.at) for point in points],
        "values": [float(f"{point.value:.6g}") if math.isfinite(point.value) else None for point in points],
        "lost": [[point.step, str(point.value)] for point in lost[:1]],
        "lost_count": len(lost),
    }


def _seconds(moment: datetime) -> float:
    return round(moment.timestamp(), 1)
