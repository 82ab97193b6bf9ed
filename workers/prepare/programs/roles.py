"""The instances of roles on this node: the program, packages, variables and devices of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.domain.scheduling.resources import Device
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of, has_rollouts
from app.domain.spec.roles import INSTANCE, ROLLOUT, TASK, TRAIN, JobRole, in_world_of
from app.services.attempts.work_instances import WorkInstance
from app.services.attempts.work_orders import WorkOrder
from config.redaction import Redaction
from config.settings import Settings
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.job_secrets import JOB_SECRET, NO_KEY, attempt_secret
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.job_image import JobImage, program_in
from workers.prepare.packages.job_packages import JobPackages, with_packages
from workers.prepare.programs.program import ENVIRONMENT, device_uuids, find_program, job_environment, program
from workers.run_dir.layout import RunDirectory
from workers.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class RolesHere:
    """What the roles of an attempt are prepared with on this node."""

    settings: Settings
    work: WorkOrder
    library: Library
    sandbox: Sandbox
    run: RunDirectory
    redaction: Redaction
    image: JobImage


@dataclass(frozen=True, kw_only=True)
class PreparedRoles:
    """``spec`` has the instances of this node; ``environments`` replace the job's in the ranks of a role.

    ``readable`` is what the ranks must see of programs and packages, the job's own among them.
    """

    spec: RunSpec
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()


def with_roles(packages: JobPackages, here: RolesHere, sources: JobInputs, secrets: Mapping[str, str]) -> PreparedRoles:
    """The job with the instances of its roles on this node, if it has roles. Raises AttemptFailed.

    All of its ranks know a secret of the attempt, by which they know each other.
    """
    mine, spec = here.work.instances, packages.spec
    if not mine:
        return PreparedRoles(spec=spec, readable=packages.readable)
    instances: dict[tuple[str, int], RoleInstance] = {}
    environments: dict[str, dict[str, str]] = {}
    readable = [*packages.readable]
    for number, role in enumerate(here.work.document.tasks):
        placed = [each for each in mine if each.role == role.role]
        if not placed:
            continue
        document = document_of(here.work.document, role)
        environments[role.role] = environment_of_role(here.work.document, number, secrets)
        fields, needs = _program(spec, here, role, document, sources, environments[role.role])
        readable += needs
        for each in placed:
            instances[each.role, each.index] = _instance(here, spec, role, each, fields)
    known = _known_to_all(here)
    ordered = tuple(sorted(instances.values(), key=lambda each: each.first_rank))
    gpus = [device for device in here.work.devices if _is_gpu(device)]
    return PreparedRoles(
        spec=replace(spec, instances=ordered, **_devices(gpus)),
        environments={name: {**variables, **known} for name, variables in environments.items()},
        readable=tuple(readable),
    )


def _known_to_all(here: RolesHere) -> dict[str, str]:
    """The variable with the attempt's secret, which logs mask from now on; none on a node without a secret key."""
    secret = attempt_secret(here.settings, job_id=here.work.job_id, attempt=here.work.attempt)
    if secret:
        here.redaction.add([secret])
        return {JOB_SECRET: secret}
    if has_rollouts(here.work.document):
        raise AttemptFailed("INTERNAL", NO_KEY)
    return {}


def environment_of_role(document: JobDocument, number: int, secrets: Mapping[str, str]) -> dict[str, str]:
    """The variables of the job, and over them those of its role of this number, secret ones included."""
    of_role = f"tasks.{number}.{ENVIRONMENT}"
    opened = {key.removeprefix(of_role): value for key, value in secrets.items() if key.startswith(of_role)}
    own = document.tasks[number].training_config.environment
    return {**job_environment(document.training_config.environment, secrets), **own, **opened}


def _program(
    spec: RunSpec,
    here: RolesHere,
    role: JobRole,
    document: JobDocument,
    sources: JobInputs,
    environment: Mapping[str, str],
) -> tuple[dict[str, Any], list[Path]]:
    """Fields of the role's instances, and what they must be able to read."""
    framework = document.training_config.framework
    script, code = find_program(here.library, framework)
    readable: list[Path] = []
    if code is None or code == sources.code:
        fields = program(framework, here.run, replace(sources, script=script, code=code))
    else:  # a script in another directory than the job's: at its own path
        fields = program(framework, here.run, replace(sources, script=None, code=None)) | {"script": str(script)}
        readable.append(code)
    decided = program_in(here.image, replace(spec, **fields), framework)
    fields = {name: getattr(decided, name) for name in fields}
    if role.training_config.packages is None:
        return fields | {"packages_path": spec.packages_path}, readable
    found = with_packages(spec, document, here.settings, here.library, here.sandbox, environment, code)
    return fields | {"packages_path": found.spec.packages_path}, [*readable, *found.readable]


def _instance(
    here: RolesHere, spec: RunSpec, role: JobRole, placed: WorkInstance, fields: Mapping[str, Any]
) -> RoleInstance:
    tasks = here.work.document.tasks
    devices = [device for device in here.work.devices if device.index in placed.devices]
    cores = role.resource_config.cpu_cores or spec.threads_per_rank * len(devices)
    return RoleInstance(
        role=role.role,
        index=placed.index,
        count=role.count,
        first_rank=placed.first_rank,
        ranks=placed.ranks,
        threads_per_rank=max(1, cores // placed.ranks),
        depends_on=role.depends_on,
        max_restarts=here.work.document.training_config.max_retries if role.restart == TASK else 0,
        sidecar=role.is_sidecar,
        program=role.program,
        rollouts=next((each.role for each in tasks if each.program == ROLLOUT), "") if role.program == TRAIN else "",
        **_place_in_world(_world(here.work, role, placed), placed),
        **fields,
        **_devices([device for device in devices if _is_gpu(device)]),
    )


def _world(work: WorkOrder, role: JobRole, placed: WorkInstance) -> list[WorkInstance]:
    """The instances whose ranks are counted together with those of this one; the first of them has rank 0."""
    if role.world == INSTANCE:
        return [placed]
    members = in_world_of(work.document.tasks, role)
    return [each for each in work.all_instances if each.role in members]


def _place_in_world(world: Sequence[WorkInstance], placed: WorkInstance) -> dict[str, Any]:
    number = world.index(placed)
    return {
        "role_first_rank": sum(each.ranks for each in world[:number]),
        "role_world_size": sum(each.ranks for each in world),
        "node_rank": number,
        "nodes": len(world),
        "leader": world[0].role,
        "leader_index": world[0].index,
    }


def _is_gpu(device: Device) -> bool:
    return not device.is_cpu and not device.simulated


def _devices(gpus: Sequence[Device]) -> dict[str, Any]:
    return {
        "device_type": "cuda" if gpus else "cpu",
        "device_indices": tuple(device.index for device in gpus),
        "device_uuids": device_uuids(gpus) if gpus else (),
    }
