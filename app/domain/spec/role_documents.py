"""A role of a job as a job document of its own: what rules, requests and nodes read of one of its instances."""

from collections.abc import Collection

from app.domain.spec.image import Image
from app.domain.spec.model import Framework, JobDocument
from app.domain.spec.roles import ROLLOUT, TRAIN, JobRole, RoleTraining
from app.domain.spec.roles import SCRIPT as PROGRAM_OF_A_SCRIPT

SCRIPT, ARGUMENTS, COMMAND = "custom_script_path", "custom_arguments", "custom_command"
# What a role has for each of its instances, and the job therefore not for a node.
RESOURCES = (
    *("gpu_count", "device_type", "gpu_type", "gpu_memory_min_mb", "cpu_cores", "ram_min_mb", "storage_min_mb"),
    *("required_node_labels", "forbidden_node_labels"),
)
_CUSTOM = "CUSTOM"  # as hyperparameters.parsing has it, which is above this module
_OF_TRAINER = (
    *("hyperparameters", "resume_from_checkpoint", "evaluation", "evaluations", "on_divergence", "halt_at", "grader"),
    "packages",
)
_LABELS = ("required_node_labels", "forbidden_node_labels")
IMAGE = "image"  # of resource_config; a role has its own, or the job's


def document_of(document: JobDocument, role: JobRole) -> JobDocument:
    """The job as if each of its nodes were an instance of this role: with its program and devices, without roles.

    Labels of nodes, and environment variables, are the job's and the role's together.
    """
    if role.program == PROGRAM_OF_A_SCRIPT and document.training_config.framework.type != _CUSTOM:
        document = _of_a_script(document)
    asked, own = role.resource_config, document.resource_config
    resources = {name: getattr(asked, name) for name in RESOURCES if name not in _LABELS}
    labels = {name: tuple(dict.fromkeys((*getattr(own, name), *getattr(asked, name)))) for name in _LABELS}
    training, program = document.training_config, role.training_config
    return document.changed(
        training_config=training.changed(
            framework=_framework(training.framework, program),
            environment={**training.environment, **program.environment},
            packages=program.packages if program.packages is not None else training.packages,
        ),
        resource_config=own.changed(**resources, **labels, node_count=1, **_own_image(role)),
    ).without("tasks")


def _own_image(role: JobRole) -> dict[str, Image]:
    image = role.resource_config.image
    return {} if image is None else {IMAGE: image}


def image_of_role(document: JobDocument, role: JobRole) -> Image:
    """Instances of roles with other images are on other nodes, since a node has one sandbox for a job."""
    return role.resource_config.image or document.resource_config.image


def with_image_of(document: JobDocument, names: Collection[str]) -> JobDocument:
    """The job with the image of the roles with these names, whose instances are on one node, as the whole job's."""
    here = next((role for role in document.tasks if role.role in names), None)
    if here is None:
        return document
    return document.changed(resource_config=document.resource_config.changed(**_own_image(here)))


def image_at(document: JobDocument) -> str:
    """Begins the fields of an image that is the document's by ``with_image_of``: ``tasks.N.`` for a role's."""
    mine = document.resource_config.image
    of_roles = (f"tasks.{n}." for n, role in enumerate(document.tasks) if role.resource_config.image == mine)
    return next(of_roles, "")


def training_of(document: JobDocument) -> JobDocument:
    """What a built-in trainer trains, and on which devices: those of the role that trains, if the job has one.

    Its instances are the nodes of the training.
    """
    trains = next((role for role in document.tasks if role.program == TRAIN), None)
    if trains is None:
        return document
    own = document_of(document, trains)
    return own.changed(resource_config=own.resource_config.changed(node_count=trains.count))


def _of_a_script(document: JobDocument) -> JobDocument:
    """The job without what is its built-in trainer's alone: a script beside that is not concerned by it."""
    training = document.training_config.without(*_OF_TRAINER).changed(framework=Framework().changed(type=_CUSTOM))
    return document.without("data_config", "output_config").changed(training_config=training)


def has_rollouts(document: JobDocument) -> bool:
    """Whether the completions of a training come from a role of their own."""
    return any(role.program == ROLLOUT for role in document.tasks)


def _framework(framework: Framework, program: RoleTraining) -> Framework:
    """A role's script or command takes the place of the job's, whichever that has."""
    if program.custom_command:
        framework = framework.without(SCRIPT, ARGUMENTS).changed(custom_command=program.custom_command)
    elif program.custom_script_path:
        framework = framework.without(COMMAND).changed(custom_script_path=program.custom_script_path)
    if program.custom_arguments is not None:
        framework = framework.changed(custom_arguments=program.custom_arguments)
    if program.config:
        distributed = framework.distributed
        config = {**distributed.config, **program.config}
        framework = framework.changed(distributed=distributed.changed(config=config))
    return framework


def field_of_role(field: str, number: int, role: JobRole) -> str:
    """The field of the job's document that a field of ``document_of`` comes from."""
    section, _, rest = field.partition(".")
    own = rest
    if section == "training_config":
        own = rest.removeprefix("framework.").removeprefix("distributed.")
    name = own.partition(".")[0]
    is_image = name == IMAGE and role.resource_config.image is not None
    if section == "resource_config" and (name in RESOURCES or is_image):
        return f"tasks.{number}.resource_config.{own}"
    if section != "training_config" or name not in role.training_config.given:
        return field
    if name == "environment" and own.partition(".")[2] not in ("", *role.training_config.environment):
        return field
    return f"tasks.{number}.training_config.{own}"
