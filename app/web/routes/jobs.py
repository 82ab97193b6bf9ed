"""The list of jobs: filters and columns in the URL, and actions on several jobs."""

from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, redirect, request, url_for
from marshmallow import fields, validate

from app.domain.spec.inference import KINDS
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.pagination import next_page_token, page_request
from app.schemas.documents import RequestSchema
from app.schemas.jobs import LABEL_KEY
from app.schemas.strict_fields import Matching, Text
from app.security.permissions import Permission
from app.services.access.key_names import ids_named
from app.services.jobs import listing
from app.services.jobs.control import bulk
from app.services.jobs.control.bulk import MOST_JOBS, ActionOutcome
from app.services.requests.pagination import Page
from app.web import job_columns, job_filters
from app.web.forms import form
from app.web.job_filters import JobsQuerySchema, with_changed
from app.web.pages import is_partial, page, part

blueprint = Blueprint("web_jobs", __name__)
PAGE_SIZE = 50
_NOTHING: Page[Any] = Page(items=(), next_after=None, total_count=0, total_count_capped=False)
# Options of the form: value and what a person reads.
_OPTIONS = {
    "states": [(name, title) for name, (title, _) in job_filters.GROUPS.items()]
    + [(state, state) for state in job_filters.STATES],
    "methods": [(each, each) for each in job_filters.METHODS],
    "frameworks": [(each, each) for each in job_filters.FRAMEWORK_NAMES],
    "kinds": [(each, each) for each in KINDS],
    "spans": [(name, title) for name, (title, _) in job_filters.SPANS.items()],
}


class SelectedSchema(RequestSchema):
    job = fields.List(Text(longest=64), load_default=list, validate=validate.Length(max=MOST_JOBS))


class LabelSelectedSchema(SelectedSchema):
    key = Matching(LABEL_KEY, "must be 1 to 63 of letters, digits and ._/-", required=True)
    value = Text(longest=255, load_default="")


@blueprint.get("/jobs")
@operation("List jobs", permission=Permission.VIEW, query=JobsQuerySchema, media="html")
def jobs(query: dict[str, Any]) -> Response:
    given = list(request.args.items(multi=True))
    defaults = job_columns.defaults(caller())
    if (wanted := job_filters.canonical(given, defaults)) != given:
        return _redirected(wanted)
    columns = job_columns.chosen(query["column"] or defaults)
    is_refused = not all(map(job_filters.is_label, query["label"]))
    found = _NOTHING if is_refused else _found(query)
    token = next_page_token(found, query)
    here = url_for("web_jobs.jobs")
    values: dict[str, Any] = {
        "is_refused": is_refused,
        "jobs": found.items,
        "total": found.total_count,
        "capped": found.total_count_capped,
        "columns": columns,
        "order": query["order_by"],
        "url": request.full_path.rstrip("?"),
        "first_url": with_changed(here, given) if query["page_token"] else "",
        "next_url": _with_token(here, given, token) if token else "",
        "sorted_by": lambda order: with_changed(here, given, order_by=order),
    }
    if is_partial():
        return part("jobs/list_part.html", **values)
    form_of: dict[str, Any] = {
        "query": query,
        "options": _OPTIONS,
        "all_columns": job_columns.NAMED,
        "most_selected": MOST_JOBS,
        "is_label": job_filters.is_label,
    }
    return page("jobs/jobs.html", 422 if is_refused else 200, **form_of, **values, **_names(found))


@blueprint.post("/jobs/cancel")
@operation("Cancel several jobs", permission=Permission.MANAGE, media="html", **form(SelectedSchema))
def cancel_jobs(body: dict[str, Any]) -> Response:
    return _results("cancelled", bulk.cancel(plane(), caller(), body["job"]))


@blueprint.post("/jobs/pause")
@operation("Pause several jobs", permission=Permission.MANAGE, media="html", **form(SelectedSchema))
def pause_jobs(body: dict[str, Any]) -> Response:
    return _results("paused", bulk.pause(plane(), caller(), body["job"]))


@blueprint.post("/jobs/label")
@operation("Set a label of several jobs", permission=Permission.MANAGE, media="html", **form(LabelSelectedSchema))
def label_jobs(body: dict[str, Any]) -> Response:
    value = body["value"].strip()
    return _results("labelled", bulk.label(plane(), caller(), body["job"], body["key"], value or None))


def _found(query: dict[str, Any]) -> Any:  # noqa: ANN401 – a page of the service
    filters = job_filters.asked(query, now=datetime.now(UTC))
    with plane().db.read() as session:
        if query["creator"]:
            name = query["creator"][-1]
            filters["created_by_one_of"] = [caller().key_id] if name == "me" else ids_named(session, caller(), name)
        wanted = page_request({**query, "page_size": PAGE_SIZE})
        return listing.page(session, caller(), filters, wanted, with_outlook=False)


def _names(found: Any) -> dict[str, Any]:  # noqa: ANN401 – a page of the service
    """What columns can be added, as far as the jobs shown have them."""
    return {
        "metric_names": job_columns.metric_names(found.items),
        "parameter_names": job_columns.parameter_names(found.items),
    }


def _results(what: str, outcomes: list[ActionOutcome]) -> Response:
    values: dict[str, Any] = {
        "what": what,
        "outcomes": outcomes,
        "failed": sum(bool(each.problem) for each in outcomes),
    }
    if not is_partial():
        return page("jobs/results.html", **values)
    response = part("jobs/results_part.html", **values)
    response.headers["HX-Trigger"] = "jobs-changed"
    return response


def _redirected(arguments: list[tuple[str, str]]) -> Response:
    response = Response(status=303)
    response.headers["Location"] = redirect(with_changed(url_for("web_jobs.jobs"), arguments)).location
    return response


def _with_token(path: str, given: list[tuple[str, str]], token: str) -> str:
    return with_changed(path, [pair for pair in given if pair[0] != "page_token"], page_token=token)
