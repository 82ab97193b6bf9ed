"""Figures of sweeps: numbers as JSON, or drawn as SVG for callers who accept it."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from flask import Blueprint, Response
from marshmallow import Schema
from sqlalchemy.orm import Session

from app.domain.sweeps.pictures import front, history, importance, parallel, rungs, slices
from app.domain.sweeps.pictures.svg import STYLE
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.http.pictures import picture, wants_picture
from app.models import Sweep
from app.schemas.tuning.figures import (
    FrontQuerySchema,
    FrontSchema,
    HistoryQuerySchema,
    HistorySchema,
    ImportanceQuerySchema,
    ImportanceSchema,
    ParallelSchema,
    ParametersQuerySchema,
    RungsSchema,
    SlicesSchema,
)
from app.security.permissions import Permission
from app.services.sweeps import lookup
from app.services.sweeps.reading import figures

Figure = TypeVar("Figure")

blueprint = Blueprint("sweep_figures", __name__)
_HISTORY, _PARALLEL, _IMPORTANCE = HistorySchema(), ParallelSchema(), ImportanceSchema()
_SLICES, _RUNGS, _FRONT = SlicesSchema(), RungsSchema(), FrontSchema()
_figure = partial(operation, permission=Permission.VIEW, media="json or picture", refuses=(400,))


@blueprint.get("/sweeps/<sweep_id>/figures/history")
@_figure("Show the values of a sweep's trials, and the best so far", query=HistoryQuerySchema, answer=HistorySchema)
def show_history(sweep_id: str, query: dict[str, Any]) -> Reply | Response:
    found, name = _read(sweep_id, partial(figures.history, **query))
    return _shown(_HISTORY, found, history.draw, name)


@blueprint.get("/sweeps/<sweep_id>/figures/parallel")
@_figure(
    "Show the trials of a sweep as lines over an axis for each parameter",
    query=ParametersQuerySchema,
    answer=ParallelSchema,
)
def show_parallel(sweep_id: str, query: dict[str, Any]) -> Reply | Response:
    found, name = _read(sweep_id, partial(figures.parallel, **query))
    return _shown(_PARALLEL, found, parallel.draw, name)


@blueprint.get("/sweeps/<sweep_id>/figures/importance")
@_figure("Show how much each parameter of a sweep matters", query=ImportanceQuerySchema, answer=ImportanceSchema)
def show_importance(sweep_id: str, query: dict[str, Any]) -> Reply | Response:
    asked, name = _read(sweep_id, partial(figures.importance_question, refuses_few=False, **query))
    return _shown(_IMPORTANCE, figures.importance_of(asked), importance.draw, name)


@blueprint.get("/sweeps/<sweep_id>/figures/slice")
@_figure("Show the values of a sweep's trials against each parameter", query=ParametersQuerySchema, answer=SlicesSchema)
def show_slices(sweep_id: str, query: dict[str, Any]) -> Reply | Response:
    found, name = _read(sweep_id, partial(figures.slices, **query))
    return _shown(_SLICES, found, slices.draw, name)


@blueprint.get("/sweeps/<sweep_id>/figures/rungs")
@_figure("Show what trials have reported at the rungs of a sweep, and which continued", answer=RungsSchema)
def show_rungs(sweep_id: str) -> Reply | Response:
    found, name = _read(sweep_id, figures.rungs)
    return _shown(_RUNGS, found, rungs.draw, name)


@blueprint.get("/sweeps/<sweep_id>/figures/front")
@_figure("Show two objectives of a sweep's trials, and the Pareto front", query=FrontQuerySchema, answer=FrontSchema)
def show_front(sweep_id: str, query: dict[str, Any]) -> Reply | Response:
    found, name = _read(sweep_id, partial(figures.front, **query))
    return _shown(_FRONT, found, front.draw, name)


def _read(sweep_id: str, read: Callable[[Session, Sweep], Figure]) -> tuple[Figure, str]:
    """The figure, and the name of the sweep."""
    with plane().db.snapshot() as session:
        sweep = lookup.find(session, caller(), sweep_id)
        return read(session, sweep), sweep.name


def _shown(schema: Schema, found: Figure, draw: Callable[[Figure, str], str], name: str) -> Reply | Response:
    if wants_picture():
        return picture(draw(found, name), style=STYLE)
    return Reply(schema.dump(found))
