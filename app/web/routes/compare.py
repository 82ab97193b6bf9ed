"""Several jobs beside each other: their curves, the fields that differ, their final metrics, and means of groups."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from flask import Blueprint, Response, redirect, request, url_for
from marshmallow import fields, validate

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.comparison import FieldDifference, JobGroup, groups_by, spread_of
from app.domain.lifecycle.states import TERMINAL
from app.domain.metric_groups import order_of
from app.http.context import caller, plane
from app.http.envelope import json_response
from app.http.operation import operation
from app.schemas.comparisons import AXES, FEWEST_JOBS, MOST_JOBS
from app.schemas.documents import RequestSchema
from app.schemas.strict_fields import Text
from app.security.permissions import Permission
from app.services.jobs import comparison, handles
from app.services.jobs.comparison import MOST_METRICS, ComparedMetric, Comparison, ComparisonRequest, CurvePoint
from app.web.job_filters import Given, with_changed
from app.web.pages import page

blueprint = Blueprint("web_compare", __name__)
MOST_POINTS, FEWEST_POINTS = 400, 100  # of each curve
ALL_POINTS = 2_000  # of the curves of one metric
VALUES = {"final": "Final", "best": "Best of all steps"}
# The page has two thousand elements at most, and each cell is one.
_CELLS = 300
_FEWEST_ROWS = 5
_MOST_GROUPS = 10


class CompareQuerySchema(RequestSchema):
    job = Given(Text(longest=64))
    add = Given()
    metric = Given(validate=validate.Length(max=MOST_METRICS))
    by = Given(fields.String(validate=validate.OneOf(AXES)))
    values = Given(fields.String(validate=validate.OneOf(list(VALUES))))
    group = Given()
    fields_shown = Given(fields.String(validate=validate.OneOf(["all"])))


@blueprint.get("/compare")
@operation("Compare jobs", permission=Permission.VIEW, query=CompareQuerySchema, media="html")
def compare(query: dict[str, Any]) -> Response:
    given, wrong = _given(query)
    here = url_for("web_compare.compare")
    if not wrong and given != list(request.args.items(multi=True)):
        return _redirected(with_changed(here, given))
    jobs = list(dict.fromkeys(query["job"]))
    if len(jobs) < FEWEST_JOBS:
        return page("compare/choose.html", missing=(), jobs=jobs, wrong=wrong)
    values = _last(query, "values", "final")
    asked = replace(_asked(query), reads="best" if values == "best" else "final")
    with plane().db.snapshot() as session:
        missing = comparison.missing(session, caller(), jobs)
        jobs = [each for each in jobs if each not in missing]
        if len(jobs) < FEWEST_JOBS:
            return page("compare/choose.html", 404, missing=missing, jobs=jobs, wrong=wrong)
        found = _in_order(comparison.compare(session, caller(), replace(asked, jobs=jobs)))
    given = [(name, value) for name, value in given if name != "job" or value in jobs]
    group = _last(query, "group", "")
    pairs_without = {each: [pair for pair in given if pair != ("job", each)] for each in jobs}
    groups = groups_by([each.job.labels for each in found.jobs], group) if group else []
    most = max(_FEWEST_ROWS, (_CELLS - len(groups) * len(found.metrics)) // len(found.jobs))
    shown = found.differences if query["fields_shown"] else sorted(found.differences, key=_interest)[:most]
    return page(
        "compare/compare.html",
        found=found,
        missing=missing,
        wrong=wrong,
        most_jobs=MOST_JOBS,
        differences=shown,
        hidden_fields=len(found.differences) - len(shown),
        all_fields_url=with_changed(here, given, fields_shown="all"),
        without={job_id: with_changed(here, pairs) for job_id, pairs in pairs_without.items()},
        by=asked.by,
        values=values,
        group=group,
        groups=groups,
        curves_url=_curves_url(jobs, asked.by),
        **_shown(found, groups, group, values),
    )


@blueprint.get("/compare/curves.json")
@operation("Get curves of several jobs to draw", permission=Permission.VIEW, query=CompareQuerySchema)
def compare_curves(query: dict[str, Any]) -> Response:
    with plane().db.snapshot() as session:
        found = comparison.curves(session, caller(), _asked(query))
    return json_response({name: [_points(points) for points in of_jobs] for name, of_jobs in found.items()})


def _given(query: dict[str, Any]) -> tuple[list[tuple[str, str]], str]:
    """The arguments as they stand in the page's address, and what is wrong with the job that was added."""
    handle = _last(query, "add", "")
    given = [(name, value) for name, value in request.args.items(multi=True) if value and name != "add"]
    added, wrong = _added(handle) if handle else ("", "")
    return given + ([("job", added)] if added else []), wrong


def _added(handle: str) -> tuple[str, str]:
    """The id of the job that a person means by a handle, or what is wrong with the handle.

    Ids may be pasted in capitals and with spaces around; in names both count.
    """
    as_id = handle.strip().lower()
    with plane().db.read() as session:
        found = handles.matching(session, handle, project=caller().project) or (
            handles.matching(session, as_id, project=caller().project) if as_id != handle else []
        )
    if len(found) == 1:
        return found[0], ""
    return "", f"{len(found)} jobs are called {handle}: give the ID of one" if found else f"no job is called {handle}"


def _in_order(found: Comparison) -> Comparison:
    """With the metrics as the page shows them: the training loss first, the system last."""
    return replace(found, metrics={name: found.metrics[name] for name in sorted(found.metrics, key=order_of)})


def _asked(query: dict[str, Any]) -> ComparisonRequest:
    jobs = list(dict.fromkeys(query["job"]))
    if not FEWEST_JOBS <= len(jobs) <= MOST_JOBS:
        raise InvalidRequest(f"choose {FEWEST_JOBS} to {MOST_JOBS} jobs to compare, not {len(jobs)}", field="job")
    return ComparisonRequest(
        jobs=jobs,
        metrics=list(dict.fromkeys(query["metric"])),
        by=cast("comparison.Axis", _last(query, "by", "step")),
        max_points=min(MOST_POINTS, max(FEWEST_POINTS, ALL_POINTS // len(jobs))),
    )


def _shown(found: Comparison, groups: Sequence[JobGroup], group: str, values: str) -> dict[str, Any]:
    return {
        "live": " ".join(f"metrics:{each.job.id}" for each in found.jobs if each.job.state not in TERMINAL),
        "labels": [each.job.name for each in found.jobs],
        "styles": _styles(len(found.jobs), groups),
        "value_names": VALUES,
        "numbers": {name: _numbers(metric, values) for name, metric in found.metrics.items()},
        "spreads": _spreads(found, groups[:_MOST_GROUPS], values),
        "most_groups": _MOST_GROUPS,
        "group_options": _group_options(found, group),
    }


def _numbers(metric: ComparedMetric, values: str) -> list[tuple[float | None, float | None, bool]]:
    """Of each job the value, its difference to the first job, and whether it is the best of all."""
    found, differences = (
        (metric.best, metric.best_difference) if values == "best" else (metric.final, metric.final_difference)
    )
    finite = [value for value in found if value is not None and math.isfinite(value)]
    best = None
    if metric.goal is not None and len(set(finite)) > 1:
        best = max(finite) if metric.goal == "maximize" else min(finite)
    return [(value, away, best is not None and value == best) for value, away in zip(found, differences, strict=True)]


def _spreads(found: Comparison, groups: Sequence[JobGroup], values: str) -> dict[str, list[Any]]:
    """Metric → of each group the spread."""
    return {
        name: [
            spread_of([(metric.best if values == "best" else metric.final)[i] for i in each.places]) for each in groups
        ]
        for name, metric in found.metrics.items()
    }


def _group_options(found: Comparison, group: str) -> list[tuple[str, str]]:
    keys = {key for each in found.jobs for key in each.job.labels} | ({group} if group else set())
    return [("", "No groups"), *((key, key) for key in sorted(keys))]


def _styles(count: int, groups: Sequence[JobGroup]) -> list[int]:
    """Of each job the number of its line's color: that of its group where there are groups."""
    of_groups = {place: number for number, each in enumerate(groups) for place in each.places}
    return [of_groups.get(place, place) for place in range(count)]


def _interest(row: FieldDifference) -> tuple[bool, str]:
    """What was set to be compared comes first."""
    return not row.field.startswith(("training_config.hyperparameters", "labels")), row.field


def _points(points: Sequence[CurvePoint]) -> dict[str, list[float | None]]:
    """As columns; a value that is not finite is a gap."""
    return {
        "xs": [point.x for point in points],
        "ys": [point.value if math.isfinite(point.value) else None for point in points],
    }


def _last(query: dict[str, Any], name: str, default: str) -> str:
    return str(query[name][-1]) if query[name] else default


def _curves_url(jobs: Sequence[str], by: str) -> str:
    return with_changed(url_for("web_compare.compare_curves"), [*(("job", each) for each in jobs), ("by", by)])


def _redirected(url: str) -> Response:
    response = Response(status=303)
    response.headers["Location"] = redirect(url).location
    return response
