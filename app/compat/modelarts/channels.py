"""Inputs, outputs and volumes of ModelArts' jobs → data, results and mounts of a native job document. Pure."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.mounts import OPTIONAL, ContainerMount, mount_of_data
from app.domain.errors import BadSpec
from app.domain.spec.model import OUTPUT
from app.domain.spec.rules.mounts import why_not_free
from app.schemas.spec.field_verdicts import warning

_OUTPUT = "$(TRAINYARD_OUTPUT_DIR)"
_VOLUMES = {"nfs": "nfs_server_path", "pfs": "pfs_path", "obs": "obs_path"}  # kind → the field with its place


class Channels(NamedTuple):
    """Inputs and outputs of a job: data sources, destination, and arguments and variables with their paths."""

    sources: list[dict[str, Any]]
    output_path: str | None
    mounts: list[ContainerMount]
    arguments: list[str]
    variables: dict[str, str]


def channels_of(algorithm: Mapping[str, Any]) -> Channels:
    """Raises BadSpec for an input without a URL, and for outputs without a common directory."""
    found = Channels([], None, [], [], {})
    for number, each in enumerate(algorithm.get("inputs") or []):
        remote = each["remote"]
        if "obs" not in remote:
            raise BadSpec("set remote.obs.obs_url", field=f"algorithm.inputs.{number}")
        location = obs_uri(remote["obs"]["obs_url"])
        found.sources.append({"path": location})
        mount = mount_of_data(each.get("local_dir") or "", location, number)
        pass_path(found, each, mount.reference)
        if mount.mounted:
            found.mounts.append(mount)
    outputs = algorithm.get("outputs") or []
    place, folders = common_place(outputs)
    for each, folder in zip(outputs, folders, strict=True):
        reference = f"{_OUTPUT}/{folder}".rstrip("/")
        pass_path(found, each, reference)
        if local := (each.get("local_dir") or "").rstrip("/"):
            native = {"type": OUTPUT, **({"sub_path": folder} if folder else {}), **OPTIONAL}
            found.mounts.append(ContainerMount(local, "", reference, native))
    return found._replace(output_path=place)


def mount_volumes(
    spec: Mapping[str, Any], channels: Channels, code: Sequence[ContainerMount], may_read: Callable[[str], bool] | None
) -> Iterator[str]:
    """Adds volumes to the data of the job, and yields warnings. Raises BadSpec for one that can't be mounted.

    ``code`` has the mounts of the code directory, ``may_read`` is None for a built-in method.
    """
    for number, volume in enumerate(spec.get("volumes") or []):
        kinds = [kind for kind in _VOLUMES if volume.get(kind)]
        if len(kinds) != 1:
            raise BadSpec(f"has one of {', '.join(_VOLUMES)}", field=f"spec.volumes.{number}")
        field, given = f"spec.volumes.{number}.{kinds[0]}", volume[kinds[0]]
        if may_read is None:
            yield warning(field, "a built-in method reads its inputs alone")
            continue
        place, local = given[_VOLUMES[kinds[0]]], given["local_path"].rstrip("/")
        location = _of_server(place, may_read, f"{field}.nfs_server_path") if kinds[0] == "nfs" else obs_uri(place)
        _refuse_path(local, [*channels.mounts, *code], f"{field}.local_path")
        channels.mounts.append(mount_of_data(local, location, len(channels.sources)))
        channels.sources.append({"path": location})
        if given.get("read_only") is False:
            yield warning(f"{field}.read_only", "volumes are read-only: write to an output")


def _of_server(place: str, may_read: Callable[[str], bool], field: str) -> str:
    """The directory at which the operator has mounted a directory of an NFS server."""
    server, _, path = place.partition(":")
    location = f"nfs/{server}/{path.strip('/')}".rstrip("/")
    if not may_read(location):
        raise BadSpec(
            f"jobs may not read {location}: have the administrator mount {place} there, below one of "
            "TRAINYARD_STORAGE_ROOTS, or use an input",
            field=field,
        )
    return location


def _refuse_path(path: str, others: Sequence[ContainerMount], field: str) -> None:
    if why := why_not_free(path):
        raise BadSpec(f"{path or '/'} {why}", field=field)
    if path in (posixpath.normpath(each.mounted) for each in others):
        raise BadSpec(
            f"{path} is the path of the code, an input, an output or another volume; name a different one", field=field
        )


def obs_uri(place: str) -> str:
    """`/bucket/directory/` is the same as `obs://bucket/directory/`."""
    return place if "://" in place else f"obs://{place.lstrip('/')}"


def pass_path(channels: Channels, channel: Mapping[str, Any], reference: str) -> None:
    if channel.get("access_method") == "env":
        channels.variables[channel["name"]] = reference
    else:
        channels.arguments.append(f"--{channel['name']}={reference}")


def common_place(outputs: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str]]:
    """The common destination of the outputs, and the folder of each output in it."""
    if not outputs:
        return None, []
    for number, each in enumerate(outputs):
        if "obs" not in each["remote"]:
            raise BadSpec("set remote.obs.obs_url", field=f"algorithm.outputs.{number}")
    places = [obs_uri(each["remote"]["obs"]["obs_url"]).rstrip("/") for each in outputs]
    scheme, _, _ = places[0].partition("://")
    paths = [place.partition("://")[2] for place in places]
    common = paths[0] if len(paths) == 1 else posixpath.commonpath(paths)
    if "/" not in common or any(not place.startswith(f"{scheme}://") for place in places):
        raise BadSpec("several outputs must be in one directory of one bucket", field="algorithm.outputs")
    return f"{scheme}://{common}", [path.removeprefix(common).strip("/") for path in paths]
