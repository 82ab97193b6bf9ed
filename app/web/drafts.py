"""Documents that are written on a page: how they begin, how they are read, and what is wrong with them so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flask import Response
from marshmallow import fields

from app.domain.errors import InvalidRequest, NotFound, NotSupportedYet, TrainyardError
from app.http.context import backend, caller, plane
from app.http.errors import MalformedJson, problem_of
from app.http.request_body import check_content, parse
from app.schemas.documents import RequestSchema
from app.services.access import projects
from app.services.jobs import details, lookup
from app.services.jobs.details import JobDetails
from app.services.recipes import Recipe, recipe, recipes
from app.services.requests.pagination import PageRequest
from app.web import job_documents
from app.web.pages import part

_MOST_PROJECTS = 100


class StartQuerySchema(RequestSchema):
    clone = fields.String(load_default="")
    recipe = fields.String(load_default="")
    project = fields.String(load_default="")


class DraftFormSchema(RequestSchema):
    document = fields.String(load_default="")
    project = fields.String(load_default="")


@dataclass(frozen=True, kw_only=True)
class Start:
    """The document of a job to begin with. ``origin``: what to know of it; ``job``: the one that it is a copy of."""

    document: Mapping[str, Any]
    project: str
    origin: Sequence[str] = ()
    job: JobDetails | None = None


def start(query: Mapping[str, str]) -> Start:
    """Raises NotFound, and InvalidRequest for a job that trains nothing."""
    if query["clone"]:
        with plane().db.read() as session:
            found = details.details(session, lookup.find(session, caller(), query["clone"]))
            document, project = job_documents.copy_of(found), found.job.project
            return Start(document=document, project=project, origin=[f"A copy of the job {found.job.name}."], job=found)
    if query["recipe"]:
        known = recipe(query["recipe"])
        if known is None:
            raise NotFound(f"there is no recipe {query['recipe'][:80]}; choose one of the list")
        document = {**known.document, "data_config": {**known.document["data_config"], "sources": []}}
        data = [f"Data: {known.data}"] if known.data else []
        return Start(document=document, project=query["project"], origin=[known.summary, *data, *known.notes])
    return Start(document=dict(job_documents.EMPTY), project=query["project"])


def choices(project: str) -> dict[str, Any]:
    """What the form around a document offers: projects, the chosen one, and recipes by family."""
    with plane().db.read() as session:
        found = projects.page(session, caller(), PageRequest(size=_MOST_PROJECTS, order="name"))
    return {
        "pairs": [(each.name, each.name) for each in found.items],
        "project": project or caller().home_project,
        "recipes": _by_family(),
    }


def read(text: str) -> dict[str, Any]:
    """The JSON object that was written. Raises InvalidRequest."""
    try:
        document = parse(text.encode())
    except MalformedJson as error:
        raise MalformedJson(error.message.replace("the body", "the document")) from error
    if not isinstance(document, dict):
        raise InvalidRequest("the document must be a JSON object: { … }")
    check_content(document, max_nesting=backend().settings.api.max_nesting)
    return document


def problem(error: TrainyardError, template: str) -> Response:
    """What is wrong with the document, which is still being written. Raises errors that are not about it."""
    found = problem_of(error)
    if not isinstance(error, NotSupportedYet) and (found.status in (401, 403) or found.status >= 500):
        raise error
    return part(template, problem=found)


@cache
def _by_family() -> dict[str, list[Recipe]]:
    found: dict[str, list[Recipe]] = {}
    for each in recipes():
        found.setdefault(each.family, []).append(each)
    return found
