"""Rules of ``tasks``: the roles of a job whose processes differ."""

from collections.abc import Mapping

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.frameworks.custom import launcher
from app.domain.spec.locations.egress import GATE
from app.domain.spec.model import JobDocument, ResourceConfig
from app.domain.spec.role_documents import IMAGE, RESOURCES
from app.domain.spec.roles import JOB
from app.domain.spec.rules import role_affinity, role_programs

MOST_ROLES, MOST_INSTANCES = 16, 64
OF_INSTANCES = (
    *(name for name in RESOURCES if not name.endswith("_labels")),
    *("gpu_fraction", "gpu_memory_request_mb", "mig_profile", "node_count"),
)


def devices_are_the_roles(document: JobDocument) -> None:
    resources = document.resource_config
    for name in OF_INSTANCES:
        if getattr(resources, name) != getattr(ResourceConfig, name):
            way_out = "use count of a role" if name == "node_count" else "give it to each role, per instance"
            if name in ("gpu_fraction", "gpu_memory_request_mb", "mig_profile"):
                way_out = "instances have whole devices"
            raise BadSpec(
                f"with tasks the job has the devices of its roles; {way_out}, and leave {name} out here",
                field=f"resource_config.{name}",
            )


def image_is_of_a_role(document: JobDocument) -> None:
    """No other rule would look at an image that no role has."""
    image = document.resource_config.image
    if image.reference and all(role.resource_config.image is not None for role in document.tasks):
        raise BadSpec(
            "every role has an image of its own, and no role has this one; leave it out",
            field=f"resource_config.{IMAGE}",
        )


def packages_are_of_roles_without_an_image(document: JobDocument) -> None:
    jobs = document.training_config.packages
    for number, role in enumerate(document.tasks):
        image, own = role.resource_config.image, role.training_config.packages
        if image is None or not image.reference or (own is None and (jobs is None or not is_custom(document))):
            continue
        way_out = "leave packages out here" if own is not None else "give packages to the roles without an image alone"
        raise BadSpec(
            f"{role.role} runs in an image, and has the image's packages and interpreter; add them to the image, or "
            f"{way_out}",
            field="training_config.packages" if own is None else f"tasks.{number}.training_config.packages",
        )


def ranks_are_the_roles(document: JobDocument) -> None:
    if document.training_config.framework.distributed.world_size is not None:
        raise BadSpec(
            "with tasks each role has a world of its own: its instances and their processes; leave world_size out",
            field="training_config.framework.distributed.world_size",
        )
    if value := launcher(document):
        raise BadSpec(
            f"{value} starts the ranks of one program, and roles differ; leave launcher out",
            field="training_config.framework.config.launcher",
        )
    if document.resource_config.network == GATE:
        raise BadSpec(
            "roles may be on several nodes, which have the network of their machines, without a gate; leave network "
            "out",
            field="resource_config.network",
        )


def roles_are_few_and_named_once(document: JobDocument) -> None:
    roles, seen = document.tasks, set[str]()
    if len(roles) > MOST_ROLES:
        raise BadSpec(f"a job has at most {MOST_ROLES} roles, not {len(roles)}", field="tasks")
    for number, role in enumerate(roles):
        if role.role in seen:
            raise BadSpec(f"there are two roles {role.role}; name them differently", field=f"tasks.{number}.role")
        seen.add(role.role)
    count = sum(role.count for role in roles)
    if count > MOST_INSTANCES:
        raise BadSpec(
            f"the roles have {count} instances together, and a job at most {MOST_INSTANCES}; ask for fewer, or start "
            "more processes in each (training_config.config)",
            field="tasks",
        )
    if all(role.is_sidecar for role in roles):
        raise BadSpec("every role is a sidecar: none would end the job; let one be none", field="tasks.0.sidecar")


def roles_wait_for_roles_before_them(document: JobDocument) -> None:
    waits = {role.role: role.depends_on for role in document.tasks}
    for number, role in enumerate(document.tasks):
        for place, name in enumerate(role.depends_on):
            if name not in waits:
                known = ", ".join(waits)
                raise BadSpec(
                    f"there is no role {name!r:.40}; known: {known}", field=f"tasks.{number}.depends_on.{place}"
                )
    circle = _circle(waits)
    if circle:
        number = next(i for i, role in enumerate(document.tasks) if role.role == circle[0])
        raise BadSpec(
            f"the roles wait for each other: {' → '.join((*circle, circle[0]))}; leave one of these out",
            field=f"tasks.{number}.depends_on",
        )


def world_of_the_job_has_several_roles(document: JobDocument) -> None:
    sharing = [number for number, role in enumerate(document.tasks) if role.world == JOB]
    if len(sharing) == 1:
        raise BadSpec(
            "only this role has world job, so that no other is in its world; give job to a second role, or leave world "
            "out",
            field=f"tasks.{sharing[0]}.world",
        )


def _circle(waits: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Roles of which each waits for the next, and the last for the first; empty if there are none."""
    left = dict(waits)
    while free := [name for name, others in left.items() if not any(each in left for each in others)]:
        for name in free:
            del left[name]
    way = list(left)[:1]
    while way:
        following = next(each for each in left[way[-1]] if each in left)
        if following in way:
            return tuple(way[way.index(following) :])
        way.append(following)
    return ()


RULES = (
    *role_programs.RULES,
    devices_are_the_roles,
    image_is_of_a_role,
    packages_are_of_roles_without_an_image,
    ranks_are_the_roles,
    roles_are_few_and_named_once,
    roles_wait_for_roles_before_them,
    world_of_the_job_has_several_roles,
    *role_affinity.RULES,
    *role_programs.LATER_RULES,
)
