"""Where ModelArts' jobs want their logs → the field ``log_path`` of a native job document. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.compat.modelarts.channels import obs_uri
from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

FIELD = "log_export_path"


def native_logs(spec: Mapping[str, Any]) -> dict[str, str]:
    """The field of ``output_config``, if the job has it."""
    place = _place(spec.get(FIELD))
    return {"log_path": place} if place else {}


def logs_of_all(spec: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The job's place, which every rank has a file in, where tasks name it. Raises BadSpec for several."""
    named = [each[FIELD] for each in (spec, *tasks) if _place(each.get(FIELD))]
    if len({_place(each) for each in named}) > 1:
        raise BadSpec(
            "the logs of a job lie in one directory, with a file for each rank; name the same for every task",
            field=f"tasks.{FIELD}",
        )
    name = "obs_url" if named and named[0].get("obs_url") else "host_path"
    return {FIELD: {name: named[0][name]}} if named else {}


def warnings_of_logs(spec: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]] = ()) -> Iterator[str]:
    for part, name in ((spec, "spec"), *((each, "tasks") for each in tasks)):
        given = part.get(FIELD) or {}
        if given.get("obs_url") and given.get("host_path"):
            yield warning(f"{name}.{FIELD}.host_path", "has no effect beside obs_url")


def _place(given: Mapping[str, Any] | None) -> str:
    given = given or {}
    return obs_uri(given["obs_url"]) if given.get("obs_url") else given.get("host_path") or ""
