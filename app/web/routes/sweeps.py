"""Sweeps: their trials, history, and what mattered."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields

from app.domain.errors import NotFound
from app.domain.sweeps import control_actions
from app.domain.sweeps.figures import Importance
from app.domain.sweeps.pictures import front, history, importance, parallel, rungs, slices
from app.domain.sweeps.pictures.svg import STYLE
from app.domain.sweeps.promotions import halts
from app.domain.sweeps.spec import NONE, SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.http.pictures import picture
from app.schemas.documents import RequestSchema
from app.schemas.queries import AnyQuerySchema, OrderBy, one_of
from app.schemas.strict_fields import Text
from app.security.permissions import Permission
from app.services.sweeps import commands, lookup, trial_commands
from app.services.sweeps.reading import best, figures, listing
from app.services.sweeps.reading.figures import ImportanceQuestion
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done, is_partial, page, part

blueprint = Blueprint("web_sweeps", __name__)
MOST_BEST = 20
_POINTS = 1_000  # of a picture
_TAGS = 500  # the page has two thousand elements at most, and each value of a trial that is a tag is one
_KEPT_SECONDS = 3600.0  # importances, which take seconds


@dataclass(frozen=True)
class _Asked:
    sweep_id: str
    question: ImportanceQuestion


def _importance(asked: _Asked) -> Importance:
    """One computes it for all viewers. Raises SearchUnavailable.

    Known by the numbers of the completed trials: what those have measured stays.
    """
    completed = hash(tuple(each.number for each in asked.question.completed))
    key = ("importance", asked.sweep_id, completed)
    return backend().shared.get(key, _KEPT_SECONDS, lambda: figures.importance_of(asked.question))


def _importance_question(session: Any, sweep: Any) -> _Asked:  # noqa: ANN401 – pages know neither sessions nor rows
    found = figures.importance_question(session, sweep, objective="", refuses_few=False)
    return _Asked(sweep.id, found)


# Name of a figure → its title, what reads it in a transaction, and what draws it.
_FIGURES: dict[str, tuple[str, Callable[..., Any], Callable[..., str]]] = {
    "history": ("Values by trial", partial(figures.history, objective="", max_points=_POINTS), history.draw),
    "front": ("Pareto front", partial(figures.front, x="", y="", max_points=_POINTS), front.draw),
    "parallel": (
        "Trials over their parameters",
        partial(figures.parallel, objective="", parameters=(), max_points=_POINTS),
        parallel.draw,
    ),
    "importance": (
        "Importance of the parameters",
        _importance_question,
        lambda asked, name: importance.draw(_importance(asked), name),
    ),
    "slice": (
        "Values against each parameter",
        partial(figures.slices, objective="", parameters=(), max_points=_POINTS),
        slices.draw,
    ),
    "rungs": ("Early stopping by rung", figures.rungs, rungs.draw),
}


class SweepListSchema(WebListSchema):
    order_by = OrderBy("created_at", "name", "status")
    status = one_of(tuple(SweepState))
    project = Text(longest=63)
    name = Text(longest=128)


class TrialListSchema(WebListSchema):
    order_by = OrderBy("number", "state", "value", default="-number")
    state = one_of(tuple(TrialState))


class ReasonFormSchema(RequestSchema):
    reason = Text(longest=1000, load_default="")


class PauseSweepFormSchema(RequestSchema):
    trials = fields.String(load_default="pause")


@blueprint.get("/sweeps")
@operation("List sweeps", permission=Permission.VIEW, query=SweepListSchema, media="html")
def sweeps(query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = listing.page(session, caller(), _several(query, "status"), page_request(query))
    return page("sweeps/sweeps.html", sweeps=listed(found, query), query=query, states=list(SweepState))


@blueprint.get("/sweeps/<sweep_id>")
@operation("Show a sweep and its trials", permission=Permission.VIEW, query=TrialListSchema, media="html")
def sweep(sweep_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        row = lookup.find(session, caller(), sweep_id)
        found = listing.with_forecast(session, listing.details(session, row))
        trials = listing.trials(session, row, _several(query, "state"), page_request(query))
        leading = best.best(session, row, top=MOST_BEST) if len(found.spec.objectives) > 1 else []
    values: dict[str, Any] = {
        "sweep": found,
        "trials": listed(trials, query),
        "front": leading,
        "tags": max(1, _TAGS // max(1, len(trials.items))),
        "pictures": _pictures(found.spec),
        "query": query,
        "states": list(TrialState),
        "can": control_actions.offered(SweepState(found.sweep.status)),
    }
    return part("sweeps/sweep_part.html", **values) if is_partial() else page("sweeps/sweep.html", **values)


@blueprint.get("/sweeps/<sweep_id>/figures/<name>.svg")
@operation("Draw a figure of a sweep", permission=Permission.VIEW, query=AnyQuerySchema, media="bytes")
def figure(sweep_id: str, name: str, query: dict[str, Any]) -> Response:
    del query
    if name not in _FIGURES:
        raise NotFound(f"no figure {name[:40]}; there are {', '.join(_FIGURES)}")
    _, read, draw = _FIGURES[name]
    with plane().db.snapshot() as session:
        row = lookup.find(session, caller(), sweep_id)
        found, title = read(session, row), row.name
    return picture(draw(found, title), style=STYLE)


@blueprint.post("/sweeps/<sweep_id>/pause")
@operation("Pause a sweep", permission=Permission.MANAGE, media="html", **form(PauseSweepFormSchema))
def pause(sweep_id: str, body: dict[str, Any]) -> Response:
    commands.pause(plane(), caller(), sweep_id, finish_trials=body["trials"] == "finish")
    return _done("The sweep is paused.", sweep_id)


@blueprint.post("/sweeps/<sweep_id>/resume")
@operation("Resume a sweep", permission=Permission.MANAGE, media="html", **form())
def resume(sweep_id: str, body: dict[str, Any]) -> Response:
    del body
    commands.resume(plane(), caller(), sweep_id)
    return _done("The sweep runs again.", sweep_id)


@blueprint.post("/sweeps/<sweep_id>/stop")
@operation("Make no new trial of a sweep", permission=Permission.MANAGE, media="html", **form())
def stop(sweep_id: str, body: dict[str, Any]) -> Response:
    del body
    commands.stop(plane(), caller(), sweep_id)
    return _done("The sweep makes no new trial; those that run continue to their end.", sweep_id)


@blueprint.post("/sweeps/<sweep_id>/cancel")
@operation("Cancel a sweep and its trials", permission=Permission.MANAGE, media="html", **form(ReasonFormSchema))
def cancel(sweep_id: str, body: dict[str, Any]) -> Response:
    commands.cancel(plane(), caller(), sweep_id, reason=body["reason"])
    return _done("The sweep and its running trials are being cancelled.", sweep_id)


@blueprint.post("/sweeps/<sweep_id>/trials/<number>/stop")
@operation("End a trial early", permission=Permission.MANAGE, media="html", **form())
def stop_trial(sweep_id: str, number: str, body: dict[str, Any]) -> Response:
    del body
    trial_commands.stop(plane(), caller(), sweep_id, lookup.trial_number(number))
    return _done(f"Trial {number} ends early; what it has measured counts.", sweep_id)


@blueprint.post("/sweeps/<sweep_id>/trials/<number>/promote")
@operation("Exempt a trial from early stopping", permission=Permission.MANAGE, media="html", **form())
def promote_trial(sweep_id: str, number: str, body: dict[str, Any]) -> Response:
    del body
    trial_commands.promote(plane(), caller(), sweep_id, lookup.trial_number(number))
    return _done(f"Trial {number} is not stopped early any more.", sweep_id)


def _several(query: dict[str, Any], name: str) -> dict[str, Any]:
    """The filters, with a list of the one value that the page's form has for this."""
    return {**query, name: [query[name]]} if name in query else query


def _done(message: str, sweep_id: str) -> Response:
    return done(message, url_for("web_sweeps.sweep", sweep_id=sweep_id))


def _pictures(spec: SweepSpec) -> list[tuple[str, str]]:
    """(name, title) of the figures that the sweep has."""
    left_out = {"front"} if len(spec.objectives) == 1 else set()
    if spec.early_stopping.name == NONE and not halts(spec):
        left_out.add("rungs")
    return [(name, title) for name, (title, *_) in _FIGURES.items() if name not in left_out]
