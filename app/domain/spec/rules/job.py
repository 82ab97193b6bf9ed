"""Semantic rules of a job document that the schema can't express; each is a function that raises."""

import math
from collections.abc import Callable

from app.domain.errors import BadSpec, InvalidRequest
from app.domain.spec.credentials import CREDENTIALS, OPTIONS, check_access, check_code_credentials, kind_of_place
from app.domain.spec.document import NEEDING_A_GPU, locations
from app.domain.spec.frameworks.custom import CODE_DIR, SCRIPT
from app.domain.spec.hyperparameters.rlhf import REWARD_MODEL
from app.domain.spec.inference import TASK_DIR, TRAINING
from app.domain.spec.locations.code import check_bundle, is_bundle
from app.domain.spec.locations.egress import GATE
from app.domain.spec.locations.images import FIELD as IMAGE_FIELD
from app.domain.spec.locations.paths import (
    NO_MODEL,
    ReadingRules,
    check_code,
    check_model,
    check_output,
    check_path,
    check_script,
    check_source,
    local_path,
    output_directory,
)
from app.domain.spec.model import BaseModel, JobDocument, OutputConfig
from app.domain.spec.role_documents import document_of, field_of_role, training_of
from app.domain.spec.roles import ROLLOUT, TRAIN
from app.domain.spec.rules import (
    data,
    evaluations,
    graders,
    halts,
    image,
    inference,
    interactive,
    model,
    mounts,
    output,
    packages,
    registry_logins,
    role_programs,
    roles,
    tracking,
    training,
)
from app.domain.spec.secrets import CODE_LOGIN, MODEL_PATH, Place, parts_with_credentials
from app.domain.units import WHOLE

__all__ = ["RULES", "check", "locations"]

LEAST_OPEN_FILES, LEAST_STACK_MB = 256, 8  # with which Python and torch start
_ROUNDING = 1e-6  # 0.29 x 100 is not exactly 29 in floating point


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise InvalidRequest, with field, rule and way out, for the first rule the document breaks."""
    interactive.ports_are_of_instances(document)
    interactive.notebook_can_be_installed(document)
    if document.tasks:
        _check_roles(document, rules)
    else:
        role_programs.engine_has_whole_weights(document)
        _check_program(document, rules)
    registry_logins.logins_open_images(document)


def _check_program(document: JobDocument, rules: ReadingRules) -> None:
    for rule in RULES if document.kind == TRAINING else (*_OF_RESOURCES, *inference.RULES[document.kind]):
        rule(document)
    _check_locations(document, rules)
    _check_outputs(document, rules)
    image.refuse_foreign_image(document, rules)
    mounts.refuse_shared_claims(document, rules)
    packages.check(document, rules)
    interactive.check(document, rules)
    _check_access(document, rules)
    tracking.check(document, rules)


def _check_roles(document: JobDocument, rules: ReadingRules) -> None:
    """The rules of roles, and those of a job for each role with its program and devices."""
    for rule in roles.RULES:
        rule(document)
    for number, role in enumerate(document.tasks):
        try:
            if role.program == ROLLOUT:  # what it computes is the training's, whose devices have other rules
                _check_rollout(document_of(document, role))
            else:
                _check_program(training_of(document) if role.program == TRAIN else document_of(document, role), rules)
        except InvalidRequest as error:
            if error.field is not None:
                error.field = field_of_role(error.field, number, role)
            raise
    role_programs.divided_base_is_on_devices_of_one_kind(document)


def _check_rollout(document: JobDocument) -> None:
    for rule in (*_OF_RESOURCES, training.environment_leaves_the_platform_alone, image.image_is_of_a_script):
        rule(document)


def devices_are_asked_for(document: JobDocument) -> None:
    if document.resource_config.gpu_count < 1:
        raise BadSpec(
            f"gpu_count is {document.resource_config.gpu_count} and must be at least 1; to train without GPUs ask for "
            "device_type cpu, where each one is a CPU slot",
            field="resource_config.gpu_count",
        )


def limits_are_not_below_what_is_reserved(document: JobDocument) -> None:
    resources = document.resource_config
    reserved = {
        "ram_mb": ("ram_min_mb", resources.ram_min_mb),
        "cpu_cores": ("cpu_cores", resources.cpu_cores),
        "storage_mb": ("storage_min_mb", resources.storage_min_mb),
    }
    for name, (reservation, amount) in reserved.items():
        limit = getattr(resources.limits, name)
        if 0 < math.ceil(limit) < amount:  # whole cores are reserved for 1.5
            raise BadSpec(
                f"limits.{name} is {limit:g}, less than the {amount} that {reservation} reserves; raise it to at least "
                f"{amount}, or reserve less",
                field=f"resource_config.limits.{name}",
            )


def limits_leave_room_to_start(document: JobDocument) -> None:
    """An interpreter with its libraries needs more than the least that a kernel would accept."""
    limits = document.resource_config.limits
    for name, least, why in (
        ("open_files", LEAST_OPEN_FILES, "Python and its libraries open so many"),
        ("stack_mb", LEAST_STACK_MB, "arguments and variables of a program lie there, too"),
    ):
        if 0 < (limit := getattr(limits, name)) < least:
            raise BadSpec(
                f"limits.{name} is {limit}, and must be at least {least}, because {why}; raise it, or leave it out for "
                "what the node has",
                field=f"resource_config.limits.{name}",
            )


def gate_is_for_one_node(document: JobDocument) -> None:
    resources = document.resource_config
    if resources.network == GATE and resources.node_count > 1:
        raise BadSpec(
            "a job on several nodes has the network of its machines, without a gate; leave network out",
            field="resource_config.network",
        )


def devices_are_of_one_kind(document: JobDocument) -> None:
    resources = document.resource_config
    if resources.device_type != "cpu":
        return
    for name in NEEDING_A_GPU:
        if getattr(resources, name):
            raise BadSpec(
                f"{name} asks for GPUs but device_type is cpu; leave one of them out", field=f"resource_config.{name}"
            )


def parts_are_of_one_device(document: JobDocument) -> None:
    resources = document.resource_config
    asked = [name for name in ("gpu_fraction", "gpu_memory_request_mb", "mig_profile") if getattr(resources, name)]
    if len(asked) > 1:
        raise BadSpec(
            f"{' and '.join(asked)} each request a part of a GPU; keep one of them", field=f"resource_config.{asked[0]}"
        )
    fraction = resources.gpu_fraction or 0
    if abs(WHOLE * fraction - round(WHOLE * fraction)) > _ROUNDING:
        step = math.ceil(WHOLE * fraction) / WHOLE
        raise BadSpec(
            f"gpu_fraction goes in steps of 0.01; write {step} for {fraction:.12g}",
            field="resource_config.gpu_fraction",
        )
    count, nodes = resources.gpu_count, resources.node_count
    if nodes > 1 and asked and fraction != 1:
        raise BadSpec(
            f"{asked[0]} asks for a part of one GPU, and the job is for {nodes} nodes (node_count): of several only "
            f"whole ones are given; ask for one node, or leave {asked[0]} out",
            field=f"resource_config.{asked[0]}",
        )
    if count > 1 and asked and fraction != 1:
        raise BadSpec(
            f"{asked[0]} asks for a part of one GPU, and gpu_count for {count}: of several only whole ones are given; "
            f"ask for one, or leave {asked[0]} out",
            field=f"resource_config.{asked[0]}",
        )


_OF_RESOURCES: tuple[Callable[[JobDocument], None], ...] = (
    devices_are_asked_for,
    limits_are_not_below_what_is_reserved,
    limits_leave_room_to_start,
    gate_is_for_one_node,
    devices_are_of_one_kind,
    parts_are_of_one_device,
)
# Of trainings; later rules rely on earlier ones.
RULES: tuple[Callable[[JobDocument], None], ...] = (
    *_OF_RESOURCES,
    *training.RULES,
    *model.RULES,
    *data.RULES,
    *training.LATER_RULES,
    *graders.RULES,
    *halts.RULES,
    *output.RULES,
    *evaluations.RULES,
    *mounts.RULES,
    *image.RULES,
    *packages.RULES,
    *interactive.RULES,
)


def _check_locations(document: JobDocument, rules: ReadingRules) -> None:
    framework = document.training_config.framework
    for location, field in locations(document):
        if field.startswith("training_config.base_model") or field.endswith(REWARD_MODEL):
            check_model(location, rules, field=field)
        elif field.endswith(CODE_DIR) and is_bundle(location):
            check_bundle(location, rules.fetch_allow, field=field)
        elif field.endswith(SCRIPT) and framework.custom_code_dir and is_bundle(framework.custom_code_dir):
            continue  # relative to the bundle: there is nothing to find here
        elif field.endswith((CODE_DIR, TASK_DIR)) or (field.endswith(SCRIPT) and framework.custom_code_dir):
            check_code(location, rules, field=field)
        elif "benchmarks" in field and not field.endswith(".path"):
            check_script(location, rules, field=field)
        elif field == IMAGE_FIELD:
            check_path(location, rules, field=field)
        elif field.startswith(("training_config.framework", "training_config.hyperparameters")):
            check_script(location, rules, field=field)
        else:
            check_source(location, rules, field=field)


def _check_outputs(document: JobDocument, rules: ReadingRules) -> None:
    for name, location in _places_of(document.output_config):
        if location:
            check_output(location, rules, field=f"output_config.{name}")
    output = document.output_config
    if output.output_path and output.log_path and _same(output.output_path, output.log_path, rules):
        raise BadSpec(
            "log_path and output_path are one directory, where the log of an earlier attempt would be in the way of "
            "the model of a later one; name another directory for the log",
            field="output_config.log_path",
        )


def _same(first: str, second: str, rules: ReadingRules) -> bool:
    """Whether both are one directory."""
    places = []
    for location in (first, second):
        path = local_path(location, field="output_config")
        found = location.rstrip("/") if path is None else output_directory(path, rules, field="output_config")
        places.append(found)
    return places[0] == places[1]


def _check_access(document: JobDocument, rules: ReadingRules) -> None:
    """Each place's own credentials and options; it was checked before that the place itself is one."""
    framework = document.training_config.framework
    if framework.custom_code_credentials:
        check_code_credentials(framework.custom_code_credentials, framework.custom_code_dir, field=CODE_LOGIN)
    for part, at in parts_with_credentials(document):
        asked = CREDENTIALS if part.credentials else OPTIONS
        if not getattr(part, asked):
            continue
        source = part.source if isinstance(part, BaseModel) else None
        places = [(name, place) for name, place in _places_of(part) if place and (at, place) != (MODEL_PATH, NO_MODEL)]
        if not places:
            name = _places_of(part)[0][0]
            raise BadSpec(f"{asked} open {name}, which names no place; leave them out", field=f"{at}.{asked}")
        for name, location in places:
            kind = kind_of_place(location, field=f"{at}.{name}", is_model=at == MODEL_PATH, source=source)
            check_access(part, location, kind, rules.fetch_allow, at=at)


def _places_of(part: Place) -> list[tuple[str, str | None]]:
    """(name of the field with a place, the place) of each that the part's credentials open."""
    if isinstance(part, BaseModel):
        return [("model_id", part.model_id)]
    if isinstance(part, OutputConfig):
        return [("output_path", part.output_path), ("log_path", part.log_path)]
    return [("path", part.path)]
