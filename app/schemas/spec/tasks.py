"""Schema of ``tasks``: the roles of a job whose processes differ."""

from typing import Any

from marshmallow import fields, validate

from app.domain.spec.role_documents import IMAGE, RESOURCES
from app.domain.spec.roles import (
    INSTANCE,
    JOB,
    OTHER_NODES,
    PROGRAMS,
    ROLE,
    ROLE_NAME,
    SAME_NODE,
    TASK,
    Affinity,
    JobRole,
    RoleResources,
)
from app.domain.spec.rules.roles import MOST_INSTANCES, MOST_ROLES
from app.schemas.documents import DocumentSchema, JobPartSchema
from app.schemas.spec.packages import PackagesSchema
from app.schemas.spec.resource_config import MAX_MB, ImageSchema, NewResourceConfigSchema, ResourceConfigSchema
from app.schemas.spec.training_config import environment, script_arguments
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, SectionField, Text, Texts, Whole, says

ROLE_RULE = "must be 1 to 30 lower-case letters, digits and dashes"


class RoleResourcesSchema(ResourceConfigSchema):
    gpu_count = Whole(
        0,
        65536,
        load_default=RoleResources.gpu_count,
        **says("Devices of each instance, at least 1, all on one node and of one type: GPUs or CPU slots"),
    )
    cpu_cores = Whole(
        0,
        65536,
        **says(
            "CPU cores to reserve for each instance; its ranks share them as threads. Default: its devices' share of "
            "the node's cores"
        ),
    )
    ram_min_mb = Whole(0, MAX_MB, **says("Memory to reserve for each instance"))
    storage_min_mb = Whole(0, MAX_MB, **says("Disk space to reserve for each instance"))

    image = SectionField(
        ImageSchema,
        **says(
            "The container image of the role's script or command; default the job's. Roles with other images are on "
            "other nodes"
        ),
    )

    class Meta:
        fields = (*RESOURCES, IMAGE)


class RoleTrainingSchema(JobPartSchema):
    custom_script_path = Text(**says("The role's script; default the job's"))
    custom_arguments = script_arguments(**says("The script's arguments; default the job's"))
    custom_command = script_arguments(**says("A program with its arguments, instead of a script; default the job's"))
    environment = environment()
    packages = SectionField(PackagesSchema, **says("The packages of the role's processes; default the job's"))
    config = FreeObject(
        **says(
            "num_proc_per_node: the processes of each instance, as in training_config.framework.distributed.config; "
            "any other options of the script"
        )
    )


class AffinitySchema(JobPartSchema):
    role = Matching(ROLE_NAME, ROLE_RULE, required=True, **says("The other role, or the role itself"))
    where = Choice(
        (SAME_NODE, OTHER_NODES),
        **says(
            "same_node: each instance is on a node that has one of the other role; of the role itself: all are on one "
            "node. other_nodes: no node has instances of both; of the role itself: each is on a node of its own",
            default=Affinity.where,
        ),
    )
    required = Flag(
        **says(
            "false: a preference; where it can't be kept for all instances, the job starts without it",
            default=Affinity.required,
        )
    )


class RoleSchema(JobPartSchema):
    role = Matching(ROLE_NAME, ROLE_RULE, required=True, **says("The role's name in the job"))
    program = Choice(
        PROGRAMS,
        **says(
            "script: a script or command, of a CUSTOM job or beside a training; train: the built-in trainer of a "
            "policy (HF_TRAINER, FSDP or DEEPSPEED, RLHF with algorithm grpo or rloo), whose completions come from the "
            "role with program rollout",
            default=JobRole.program,
        ),
    )
    count = Whole(1, MOST_INSTANCES, load_default=JobRole.count, **says("Instances of the role"))
    resource_config = SectionField(
        RoleResourcesSchema,
        load_default=lambda: {"gpu_count": RoleResources.gpu_count, "device_type": RoleResources.device_type},
        **says("The devices, cores and memory of each instance"),
    )
    training_config = SectionField(RoleTrainingSchema, load_default=dict, **says("The role's program"))
    depends_on = Texts(
        most=MOST_ROLES,
        form=ROLE_NAME,
        rule=ROLE_RULE,
        **says("Roles of which every instance has started before this one is started"),
    )
    restart = Choice(
        (JOB, TASK),
        **says(
            "job: an instance that fails ends the attempt, and the job is retried as a whole; task: it is started "
            "again alone, up to max_retries times in an attempt",
            default=JobRole.restart,
        ),
    )
    sidecar = Flag(
        **says(
            "true: the role is stopped when the instances of all other roles have ended with exit code 0; with program "
            "rollout always",
            default=JobRole.sidecar,
        )
    )
    affinity = fields.List(
        fields.Nested(AffinitySchema),
        validate=validate.Length(max=MOST_ROLES),
        **says("On which nodes the role's instances are, seen from those of other roles"),
    )
    world = Choice(
        (ROLE, JOB, INSTANCE),
        **says(
            "The ranks that RANK, WORLD_SIZE and MASTER_ADDR are about. role: those of the role; job: those of all "
            "roles with job, in the order of the document; instance: those of the instance alone",
            default=JobRole.world,
        ),
    )


class NewRoleResourcesSchema(NewResourceConfigSchema):
    class Meta:
        fields = RESOURCES


class NewRoleSchema(DocumentSchema):
    """Overrides of a role for a retry: omitted fields stay as in the original job; "" and 0 remove its value."""

    role = Matching(ROLE_NAME, ROLE_RULE, required=True, **says("The role's name in the job"))
    count = Whole(1, MOST_INSTANCES, **says("Instances of the role"))
    resource_config = SectionField(
        NewRoleResourcesSchema, attribute="resources", **says("Fields to override, of each instance")
    )


def role_list(**more: Any) -> fields.List[Any]:
    return fields.List(
        fields.Nested(RoleSchema),
        validate=validate.Length(max=MOST_ROLES),
        **more,
        **says(
            f"The roles of a job whose processes differ, with up to {MOST_INSTANCES} instances, which are placed "
            "together; resource_config then has no devices and no node_count. Scripts of framework CUSTOM, or a "
            "training with its rollouts"
        ),
    )


def new_role_list() -> fields.List[Any]:
    return fields.List(
        fields.Nested(NewRoleSchema),
        validate=validate.Length(max=MOST_ROLES),
        **says("Of a job with roles: those whose devices or number of instances change, by name"),
    )
