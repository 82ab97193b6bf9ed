"""Routes of flavors, engines, quotas and tags."""

from collections.abc import Callable
from importlib import metadata
from typing import Any

from flask import Blueprint, Response, current_app

from app.compat.ids import uuid_of
from app.compat.modelarts import jobs_routes, lookup, observations_routes
from app.compat.modelarts.fields import QUOTAS_FIELDS, WORKSPACE_FIELDS
from app.compat.modelarts.flavors import flavor_item, flavors_of
from app.compat.modelarts.queries import FlavorsQuerySchema, OffsetQuerySchema, QuotasQuerySchema
from app.compat.modelarts.requests import InstancesSchema, QuotasSchema, TagsSchema
from app.compat.modelarts.searching import routes as searching
from app.compat.naming import Naming
from app.domain.scheduling.fair_share import quota_of
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import ChangeJobSchema
from app.schemas.spec.field_verdicts import warnings_of
from app.security.permissions import Permission
from app.services.access import projects
from app.services.jobs import updates
from app.services.nodes import registry
from app.services.queues import project_quotas
from app.services.rows import Session
from app.services.sweeps import commands as sweep_commands

blueprint = Blueprint("modelarts", __name__)
blueprint.register_blueprint(jobs_routes.blueprint)
blueprint.register_blueprint(observations_routes.blueprint)
blueprint.register_blueprint(searching.blueprint)
_ENGINES = {"torch": "PyTorch", "transformers": "Transformers", "deepspeed": "DeepSpeed", "megatron-core": "Megatron"}
# ModelArts' quota resource → native field.
_QUOTAS = {
    "gpus": ("gpus", "limit"),
    "cpu_slots": ("cpu_slots", "limit"),
    "running_jobs": ("max_running_jobs", ""),
    "waiting_jobs": ("max_waiting_jobs", ""),
}
_UNLIMITED = -1
_TAGS = "/<project_id>/modelarts-training-job/<training_job_id>/tags"
_CHANGES = ChangeJobSchema()
_TAG_NAMES = Naming({"labels": "tags"}, "tags")


@blueprint.get("/<project_id>/training-job-flavors")
@operation("List the flavors", permission=Permission.VIEW, query=FlavorsQuerySchema)
def list_flavors(project_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001 – the caller is within it
    with plane().db.read() as session:
        found = [flavor_item(each) for each in flavors_of(registry.capacities(session, only_ready=False))]
    flavors = [each for each in found if query.get("flavor_type", each["flavor_type"]) == each["flavor_type"]]
    return Reply({"total_count": len(flavors), "flavors": flavors})


@blueprint.get("/<project_id>/training-job-engines")
@operation("List the engines: libraries of this installation", permission=Permission.VIEW)
def list_engines(project_id: str) -> Reply:  # noqa: ARG001
    found = [_engine(package, name) for package, name in _ENGINES.items() if _version(package)]
    return Reply({"total": len(found), "items": found})


@blueprint.get("/<project_id>/training-quotas")
@operation("List the quotas of the project", permission=Permission.VIEW, query=QuotasQuerySchema)
def list_quotas(project_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        found = _quotas(session, project_id)
    wanted = [each for each in found if query.get("resource", each["resource"]) == each["resource"]]
    return Reply({"quotas": wanted}, warnings=warnings_of(query, QUOTAS_FIELDS))


@blueprint.put("/<project_id>/training-quotas")
@operation("Set quotas of the project", permission=Permission.CLUSTER_ADMIN, body=QuotasSchema)
def set_quotas(project_id: str, body: dict[str, Any]) -> Reply:
    quota: dict[str, Any] = {}
    for each in body["quotas"]:
        field, part = _QUOTAS[each["resource"]]
        wanted = None if each["quota"] == _UNLIMITED else each["quota"]
        quota[field] = {part: wanted} if part else wanted
    projects.change(plane().db, caller(), project_id, {"quota": quota})
    with plane().db.read() as session:
        return Reply({"quotas": _quotas(session, project_id)}, warnings=warnings_of(body, QUOTAS_FIELDS))


@blueprint.get(_TAGS)
@operation("List the tags of a training job", permission=Permission.VIEW)
def list_tags(project_id: str, training_job_id: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        return Reply({"tags": _tags(lookup.find(session, training_job_id).job.labels)})


@blueprint.post(f"{_TAGS}/create")
@operation("Add tags to a training job", permission=Permission.MANAGE, body=TagsSchema)
def add_tags(project_id: str, training_job_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    return _retag(training_job_id, lambda labels: labels | {each["key"]: each["value"] for each in body["tags"]})


@blueprint.delete(f"{_TAGS}/delete")
@operation("Remove tags from a training job", permission=Permission.MANAGE, body=TagsSchema)
def remove_tags(project_id: str, training_job_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    gone = {each["key"] for each in body["tags"]}
    return _retag(training_job_id, lambda labels: {key: labels[key] for key in labels if key not in gone})


@blueprint.get("/<project_id>/modelarts-training-job/tags")
@operation("List all tags of the project's training jobs", permission=Permission.VIEW, query=OffsetQuerySchema)
def list_all_tags(project_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    values: dict[str, set[str]] = {}
    with plane().db.read() as session:
        for each in lookup.rows(session):
            for key, value in each.job.labels.items():
                values.setdefault(key, set()).add(value)
    found = [{"key": key, "values": sorted(values[key])} for key in sorted(values)]
    return Reply({"tags": found[query["offset"] : query["offset"] + query["limit"]]})


@blueprint.post("/<project_id>/modelarts-training-job/resource-instances/filter")
@operation("List training jobs by tags", permission=Permission.VIEW, query=OffsetQuerySchema, body=InstancesSchema)
def list_by_tags(project_id: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:  # noqa: ARG001
    found = _tagged(body)
    page = found[query["offset"] : query["offset"] + query["limit"]]
    return Reply({"resources": page, "total_count": len(found)}, warnings=warnings_of(body, WORKSPACE_FIELDS))


@blueprint.post("/<project_id>/modelarts-training-job/resource-instances/count")
@operation("Count training jobs by tags", permission=Permission.VIEW, query=OffsetQuerySchema, body=InstancesSchema)
def count_by_tags(project_id: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:  # noqa: ARG001
    return Reply({"total_count": len(_tagged(body))}, warnings=warnings_of(body, WORKSPACE_FIELDS))


@blueprint.get("/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


def _engine(package: str, name: str) -> dict[str, Any]:
    version = _version(package)
    image = {"cpu_image_url": "", "gpu_image_url": "", "image_version": version}
    return {
        "engine_id": f"{package}-{version}",
        "engine_name": name,
        "engine_version": f"{name}-{version}",
        "v1_compatible": False,
        "run_user": "",
        "image_info": image,
    }


def _version(package: str) -> str:
    """Empty for a package that is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _quotas(session: Session, project: str) -> list[dict[str, Any]]:
    quota = quota_of(projects.require(session, project).quota)
    used = project_quotas.usage(session, project)
    limits = {
        "gpus": (quota.of("cuda").limit, used.devices.get("cuda", 0)),
        "cpu_slots": (quota.of("cpu").limit, used.devices.get("cpu", 0)),
        "running_jobs": (quota.max_running_jobs, used.running_jobs),
        "waiting_jobs": (quota.max_waiting_jobs, used.waiting_jobs),
    }
    return [
        {"resource": name, "quota": _UNLIMITED if limit is None else limit, "used": round(used)}
        for name, (limit, used) in limits.items()
    ]


def _tags(labels: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": labels[key]} for key in sorted(labels)]


def _retag(training_job_id: str, change: Callable[[dict[str, str]], dict[str, str]]) -> Reply:
    with plane().db.read() as session:
        details = lookup.find(session, training_job_id)
    with _TAG_NAMES.errors():
        wanted = validated(_CHANGES, {"labels": change(dict(details.job.labels))})
        change_it = sweep_commands.change if lookup.is_sweep(details) else updates.change
        changed = change_it(plane(), caller(), details.job.id, wanted)
    return Reply({"tags": _tags(dict(changed.labels))})


def _tagged(body: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = {each["key"]: each["values"] for each in body["tags"]}
    # The database filters by one label and one name; the rest is checked below.
    filters: dict[str, Any] = {"labels": [(key, values[0]) for key, values in wanted.items() if len(values) == 1][:1]}
    if body["matches"]:
        filters["name_contains"] = [body["matches"][0]["value"]]
    with plane().db.read() as session:
        return [
            {
                "resource_id": uuid_of(each.job.id),
                "resource_name": each.job.name,
                "resource_detail": {},
                "tags": _tags(dict(each.job.labels)),
            }
            for each in lookup.rows(session, filters)
            if _has(each.job.labels, wanted)
            and not (body["without_any_tag"] and each.job.labels)
            and all(match["value"] in each.job.name for match in body["matches"])
        ]


def _has(labels: dict[str, str], wanted: dict[str, list[str]]) -> bool:
    return all(key in labels and (not values or labels[key] in values) for key, values in wanted.items())
