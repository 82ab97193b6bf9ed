"""Tasks of ModelArts' heterogeneous jobs ↔ roles of a native job document. Pure.

A native job has one code directory, data and results for all of its roles. So the tasks' code must have a directory in
common, which is the job's. Inputs and outputs of all tasks are the job's; each task gets the paths of its own.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from app.compat.images import NO_REGISTRIES, native_image
from app.compat.modelarts.channels import Channels, channels_of
from app.compat.modelarts.code import CODE_PATH, code_mounts, custom, place_of
from app.compat.modelarts.flavors import flavor, flavor_item, of_resources
from app.compat.mounts import ContainerMount
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.locations.code import is_bundle
from app.domain.spec.locations.images import FIELD as IMAGE_FIELD
from app.domain.spec.model import JobDocument, ResourceConfig
from app.domain.spec.role_documents import document_of
from app.domain.spec.roles import JobRole
from app.domain.spec.rules.training import is_reserved
from app.domain.spec.secrets import MASK
from app.schemas.spec.field_verdicts import warning

_SCRIPT = ("custom_script_path", "custom_arguments", "custom_command")
# Of a role whose devices no node has any more.
_NO_FLAVOR = {"flavor_id": "", "flavor_name": ""}
# Of a task: what it may leave to the job's algorithm.
_OWN = ("code_dir", "boot_file", "local_code_dir", "working_dir")


def algorithm_of_all(algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The algorithm of a job that has the code, channels and image of all of its tasks. Raises BadSpec."""
    found = {name: value for name, value in algorithm.items() if name != "boot_file"}
    for kind in ("inputs", "outputs"):
        found[kind] = [each for each, _ in _all_channels(algorithm, tasks, kind)]
    if code := _common_code(algorithm, tasks):
        found["code_dir"] = code
    image = "" if have_images(algorithm, tasks) else _image_of(algorithm, tasks[0])
    if image or algorithm.get("engine"):
        found["engine"] = {**(algorithm.get("engine") or {}), "image_url": image}
    return found


def have_images(algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the images of tasks differ, so that each role has its own."""
    return len({_image_of(algorithm, task) for task in tasks}) > 1


def roles_of(
    algorithm: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    default: Mapping[str, Any],
    capacities: Sequence[NodeCapacity],
    warnings: list[str],
    *,
    uses_images: bool,
) -> tuple[list[dict[str, Any]], list[ContainerMount]]:
    """The roles, and the mounts of the whole job; ``default`` is the job's own resource. Raises BadSpec."""
    whole = algorithm_of_all(algorithm, tasks)
    differ = have_images(algorithm, tasks)
    if differ and not uses_images:
        warnings.append(warning("tasks.algorithm.engine.image_url", NO_REGISTRIES))
    channels = channels_of(whole)
    passed = _passed(algorithm, tasks, channels)
    roles, mounts = [], list(channels.mounts)
    for number, task in enumerate(tasks):
        own = _algorithm_of(algorithm, task, whole.get("code_dir") or "")
        with _errors_of(number, task):
            of_code = _code_mounts(own, whole.get("code_dir") or "")
            mounts += of_code
            given = Channels([], None, [], [*passed[-1], *passed[number]], channels.variables)
            training = custom(own, given, [*channels.mounts, *of_code], warnings)
            reference = _image_of(algorithm, task) if differ and uses_images else ""
            image = native_image(reference) if reference else {}
        packages = {} if image else _packages(own, whole, are_its_own=differ and uses_images)
        role = _role(number, task, {**training, **packages}, default, capacities)
        roles.append({**role, "resource_config": {**role["resource_config"], **image}})
    _refuse_two_things_at_a_path(mounts)
    return roles, mounts


def tasks_of_job(
    document: JobDocument, stored: Sequence[Mapping[str, Any]], capacities: Sequence[NodeCapacity]
) -> list[dict[str, Any]]:
    """The tasks as they were sent, ``stored``; those of a job of another API as far as ModelArts can express it."""
    named = {each["role"].lower(): each for each in stored}
    order = [*named]
    found = []
    for role in sorted(document.tasks, key=lambda each: order.index(each.role) if each.role in named else len(order)):
        sent = named.get(role.role, {})
        shown = role.training_config.environment
        variables = {name: shown.get(name, MASK) for name in sent.get("variables", shown)}
        algorithm = dict(sent["algorithm"]) if sent else _algorithm_of_role(document, role)
        for kind in ("inputs", "outputs"):
            channels = algorithm.get(kind) or []
            algorithm[kind] = channels[0] if len(channels) == 1 else channels
        algorithm = {name: value for name, value in algorithm.items() if value not in ([], {})}
        task = {"role": sent.get("role", role.role), "algorithm": algorithm | {"environments": variables}}
        resource = _resource_of(role, sent.get("task_resource") or {}, capacities)
        logs = {"log_export_path": sent["log_export_path"]} if "log_export_path" in sent else {}
        found.append({**task, "task_resource": resource, **logs})
    return found


def _algorithm_of_role(document: JobDocument, role: JobRole) -> dict[str, Any]:
    framework = document_of(document, role).training_config.framework
    script = framework.custom_script_path or ""
    places = {"code_dir": framework.custom_code_dir or script.rpartition("/")[0], "boot_file": script}
    shown = {name: f"file://{place}" if place.startswith("/") else place for name, place in places.items() if place}
    image, user = role.resource_config.image, document.resource_config.user.uid
    engine = {"image_url": image.reference} if image is not None else {}
    engine |= {"run_user": str(user)} if user is not None else {}
    return shown | ({"engine": engine} if engine else {})


def _resource_of(role: JobRole, sent: Mapping[str, Any], capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    resources = ResourceConfig.from_json(role.resource_config.to_json())
    flavor_found = of_resources(resources, capacities)
    item = {**flavor_item(flavor_found), "max_num": flavor_found.nodes} if flavor_found is not None else _NO_FLAVOR
    named = {"flavor_id": sent["flavor_id"], "flavor_name": sent["flavor_id"]} if sent.get("flavor_id") else {}
    pool = {"pool_id": sent["pool_id"]} if sent.get("pool_id") else {}
    return {**item, **named, "node_count": role.count, **pool}


def _role(
    number: int,
    task: Mapping[str, Any],
    training: Mapping[str, Any],
    default: Mapping[str, Any],
    capacities: Sequence[NodeCapacity],
) -> dict[str, Any]:
    framework = training["framework"]
    devices = devices_of(number, task, default, capacities)
    program = {name: framework[name] for name in _SCRIPT if name in framework}
    if devices["gpu_count"] > 1:
        program["config"] = {"num_proc_per_node": "1"}  # a task runs its script once for any number of devices
    variables = (task["algorithm"].get("environments") or {}).keys()
    environment = {name: value for name, value in training["environment"].items() if name in variables}
    packages = {"packages": training["packages"]} if "packages" in training else {}
    return {
        "role": task["role"].lower(),
        "count": (task.get("task_resource") or {}).get("node_count", 1),
        "resource_config": devices,
        "training_config": {**program, **({"environment": environment} if environment else {}), **packages},
    }


def devices_of(
    number: int, task: Mapping[str, Any], default: Mapping[str, Any], capacities: Sequence[NodeCapacity]
) -> dict[str, Any]:
    """The devices of each instance of a task, and the nodes that it needs. Raises BadSpec."""
    wanted = task.get("task_resource") or {}
    try:
        devices = flavor(wanted.get("flavor_id") or default.get("flavor_id"), capacities)
    except BadSpec as error:
        raise BadSpec(error.message, field=f"tasks.{number}.task_resource.flavor_id") from error
    return {**devices, **({"required_node_labels": [wanted["pool_id"]]} if wanted.get("pool_id") else {})}


def environment_of(algorithm: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a task or an algorithm without those that the platform sets."""
    given: Mapping[str, str] = algorithm.get("environments") or {}
    return {name: value for name, value in given.items() if not is_reserved(name)}


def _algorithm_of(algorithm: Mapping[str, Any], task: Mapping[str, Any], common: str) -> dict[str, Any]:
    """The algorithm as it is for one task, with its code as a part of the common directory."""
    own = task["algorithm"]
    found = {**algorithm, **{name: own[name] for name in _OWN if own.get(name)}}
    if own.get("boot_file"):
        found.pop("command", None)
    found["parameters"] = [
        *(algorithm.get("parameters") or []),
        *((own.get("job_config") or {}).get("parameters") or []),
    ]
    found["environments"] = {**(algorithm.get("environments") or {}), **(own.get("environments") or {})}
    code = found.get("code_dir") or ""
    if common and _path(code) != _path(common) and not found.get("working_dir"):
        found["working_dir"] = code_mounts(found)[0].mounted  # a script starts in its own code
    return found | {"of_task": code, "code_dir": common} if common else found


def _code_mounts(own: Mapping[str, Any], common: str) -> list[ContainerMount]:
    """The mounts of a task's code: a part of the job's code where that is more."""
    code = own.get("of_task") or own.get("code_dir") or ""
    part = _path(code).removeprefix(_path(common)).strip("/")
    found = code_mounts({**own, "code_dir": code})
    if not part:
        return found
    return [each._replace(reference=f"{CODE_PATH}/{part}", native={**each.native, "sub_path": part}) for each in found]


def _packages(own: Mapping[str, Any], whole: Mapping[str, Any], *, are_its_own: bool) -> dict[str, Any]:
    """What ModelArts installs before a task starts lies in its own code; ``are_its_own``: the job has none."""
    code = _path(whole.get("code_dir") or "")
    part = _path(own.get("of_task") or "").removeprefix(code).strip("/")
    if not (part or (are_its_own and code)) or (whole.get("engine") or {}).get("image_url"):
        return {}
    file = posixpath.join(part, "pip-requirements.txt")
    return {"packages": {"requirements_file": file, "requirements_file_required": False}}


def _common_code(algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> str:
    """The directory of all tasks' code, in the form of requests; empty where no task has any."""
    given = [code for task in tasks if (code := task["algorithm"].get("code_dir") or algorithm.get("code_dir"))]
    places = sorted({_path(code) for code in given})
    if len(places) <= 1:
        return given[0] if given else ""
    schemes = {place.partition("://")[0] if "://" in place else "file" for place in places}
    common = posixpath.commonpath([place.partition("://")[2] or place for place in places]) if len(schemes) == 1 else ""
    if any(map(is_bundle, places)) or ("/" not in common.strip("/") and not common.startswith("/")) or common == "/":
        raise BadSpec(
            "the job has one code directory: put the code of all tasks into directories of one directory in one bucket",
            field="tasks.algorithm.code_dir",
        )
    scheme = places[0].partition("://")[0] if "://" in places[0] else "file"
    return f"{scheme}://{common}"


def _path(code: str) -> str:
    return place_of(code).rstrip("/") if code else ""


def _image_of(algorithm: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    engines = (each.get("engine") or {} for each in (task["algorithm"], algorithm))
    return next((image for engine in engines if (image := engine.get("image_url"))), "")


def _all_channels(
    algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], kind: str
) -> Iterator[tuple[Mapping[str, Any], list[int]]]:
    """Each input or output once, with the numbers of the tasks that it is for; -1 stands for all of them."""
    found: dict[tuple[str, str, str, str], tuple[Mapping[str, Any], list[int]]] = {}
    for number, each in _numbered(algorithm, tasks, kind):
        place = ((each.get("remote") or {}).get("obs") or {}).get("obs_url", "")
        key = each["name"], each.get("local_dir") or "", place, each.get("access_method") or ""
        found.setdefault(key, (each, []))[1].append(number)
    yield from found.values()


def _numbered(
    algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], kind: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield from ((-1, each) for each in algorithm.get(kind) or [])
    for number, task in enumerate(tasks):
        own = task["algorithm"]
        given = own.get(kind) or (own.get("job_config") or {}).get(kind) or []
        yield from ((number, each) for each in given)


def _passed(
    algorithm: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], channels: Channels
) -> dict[int, list[str]]:
    """The arguments with the paths of channels, by number of task; those of all tasks have the number -1."""
    found: dict[int, list[str]] = {number: [] for number in range(-1, len(tasks))}
    arguments = iter(channels.arguments)
    for kind in ("inputs", "outputs"):
        for each, numbers in _all_channels(algorithm, tasks, kind):
            if each.get("access_method") != "env":
                argument = next(arguments)
                for number in numbers:
                    found[number].append(argument)
    return found


def _refuse_two_things_at_a_path(mounts: Sequence[ContainerMount]) -> None:
    seen: dict[str, Mapping[str, Any]] = {}
    for mount in mounts:
        path = posixpath.normpath(mount.mounted)
        if seen.setdefault(path, mount.native) != mount.native:
            raise BadSpec(
                f"tasks have different things at {path}, and share a sandbox; name different directories",
                field="tasks.algorithm",
            )


@contextmanager
def _errors_of(number: int, task: Mapping[str, Any]) -> Iterator[None]:
    """Makes errors about an algorithm name the task's, where the field is its own."""
    try:
        yield
    except BadSpec as error:
        name = (error.field or "").removeprefix("algorithm.").partition(".")[0]
        if error.field == IMAGE_FIELD:
            error.field = f"tasks.{number}.algorithm.engine.image_url"
        elif error.field is not None and (name in task["algorithm"] or name in _OWN):
            error.field = f"tasks.{number}.{error.field}"
        raise
