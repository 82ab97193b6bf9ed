"""Routes of searches: trials, early stop, sensitivity of parameters, algorithms, and templates."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint

from app.compat.ids import job_id_of
from app.compat.modelarts import algorithms, lookup
from app.compat.modelarts.queries import TrialsQuerySchema
from app.compat.modelarts.searching.trials import table_of, trial_id
from app.compat.modelarts.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.sweeps.spec import SweepSpec
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.rows import Session, Sweep
from app.services.sweeps import foreign, trial_commands
from app.services.sweeps.reading import figures, listing

blueprint = Blueprint("searches", __name__)
_JOB = "/<project_id>/training-jobs/<search_id>"
_TEMPLATES = "/<project_id>/training-jobs/autosearch/yaml-templates"
_ANALYSIS = ["parameter_name", "importance"]


@blueprint.get(f"{_JOB}/autosearch-trials")
@operation("List the trials of a search", permission=Permission.VIEW, query=TrialsQuerySchema)
def list_trials(project_id: str, search_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001 – as everywhere
    offset, limit = query["offset"], query["limit"]
    with plane().db.read() as session:
        sweep = lookup.find_sweep(session, search_id)
        found = foreign.page_of_trials(session, sweep, offset=offset * limit, limit=limit)  # offset counts pages
        items = table_of(SweepSpec.from_json(sweep.spec), _names(sweep), found)
        counts = {"total": sweep.next_number, "count": len(found), "limit": limit, "offset": offset}
    return Reply({**counts, "group_by": "", "items": items})


@blueprint.get(f"{_JOB}/autosearch-trials/<trial_name>")
@operation("Read a trial of a search", permission=Permission.VIEW)
def get_trial(project_id: str, search_id: str, trial_name: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        sweep = lookup.find_sweep(session, search_id)
        found = listing.one_trial(session, sweep, _number(session, sweep, trial_name))
        return Reply(table_of(SweepSpec.from_json(sweep.spec), _names(sweep), [found]))


@blueprint.post(f"{_JOB}/autosearch-trial-earlystop/<trial_name>")
@operation("End a trial of a search early; what it measured counts", permission=Permission.MANAGE)
def stop_trial(project_id: str, search_id: str, trial_name: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        sweep = lookup.find_sweep(session, search_id)
        number = _number(session, sweep, trial_name)
        stopped = trial_id(listing.one_trial(session, sweep, number).trial)
    trial_commands.stop(plane(), caller(), sweep.id, number)
    return Reply({"earlystop_trial": stopped})


@blueprint.get(f"{_JOB}/autosearch-parameter-analysis")
@operation("Read how much each parameter of a search matters", permission=Permission.VIEW, refuses=(409,))
def analyse_parameters(project_id: str, search_id: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        sweep = lookup.find_sweep(session, search_id)
        names, asked = _names(sweep), figures.importance_question(session, sweep, objective="")
    found = figures.importance_of(asked)
    data = [[names.get(each.name, each.name), f"{each.importance:.6g}"] for each in found.parameters]
    return Reply({"header": _ANALYSIS, "data": data})


@blueprint.get(f"{_JOB}/autosearch-parameter-analysis/<parameter_name>")
@operation("Read where the picture of a parameter is", permission=Permission.VIEW)
def analyse_parameter(project_id: str, search_id: str, parameter_name: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        sweep = lookup.find_sweep(session, search_id)
        native = next((native for native, name in _names(sweep).items() if name == parameter_name), None)
    if native is None:
        known = ", ".join(_names(sweep).values())
        raise NotFound(f"the search has no parameter {parameter_name[:64]}; it has {known}")
    return Reply({"file_path": f"/v1/sweeps/{sweep.id}/figures/slice?parameters={native}"})


@blueprint.get("/<project_id>/search-algorithms")
@operation("List the search algorithms", permission=Permission.VIEW)
def list_algorithms(project_id: str) -> Reply:  # noqa: ARG001
    return Reply(algorithms.algorithm_list())


@blueprint.get(_TEMPLATES)
@operation("List the templates of searches", permission=Permission.VIEW)
def list_templates(project_id: str) -> Reply:  # noqa: ARG001
    return Reply(algorithms.template_list())


@blueprint.get(f"{_TEMPLATES}/<algorithm_type>/<algorithm_name>")
@operation("Read a template of a search", permission=Permission.VIEW)
def get_template(project_id: str, algorithm_type: str, algorithm_name: str) -> Reply:  # noqa: ARG001
    return Reply(algorithms.template(algorithm_type, algorithm_name))


def _names(sweep: Sweep) -> Mapping[str, str]:
    found: Mapping[str, str] = sweep.foreign[DIALECT]["parameters"]
    return found


def _number(session: Session, sweep: Sweep, trial_name: str) -> int:
    """The number of the trial by the id of its job, or by itself. Raises NotFound."""
    if trial_name.isdecimal() and trial_name.isascii() and len(trial_name) < 10:
        return int(trial_name)
    job_id = job_id_of(trial_name)
    number = foreign.trial_of_job(session, sweep, job_id) if job_id else None
    if number is None:
        raise NotFound(f"the search has no trial {trial_name[:64]}")
    return number
