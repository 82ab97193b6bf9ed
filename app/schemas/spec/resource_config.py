"""The resources section of a job document: devices, memory, nodes and labels."""

import re

from marshmallow import fields, validate

from app.domain.names import LABEL_CONSTRAINT, LABEL_CONSTRAINT_RULE
from app.domain.scheduling.resources import MIG_PROFILE
from app.domain.spec.image import Image
from app.domain.spec.locations.egress import NETWORKS
from app.domain.spec.locations.images import PULL_POLICIES
from app.domain.spec.model import MOUNT_TYPES, Mount, ResourceConfig
from app.schemas.documents import JobPartSchema
from app.schemas.strict_fields import (
    Choice,
    Flag,
    Matching,
    Number,
    OneOrSeveral,
    SectionField,
    Text,
    Texts,
    Whole,
    says,
)

MAX_MB = 2**40  # an exabyte
MAX_ID = 2**31 - 1  # as in Kubernetes
NOT_ROOT = f"must be from 1 to {MAX_ID}, since no job runs as root; leave it out for the image's user, or 1000"
CLAIM_NAME = re.compile(r"(?!.*\.\.)[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
CLAIM_RULE = "must be the name of a volume claim: at most 253 of a-z, 0-9, dashes and dots, such as scratch"
_FILE_NAME = re.compile(r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]{0,251}")
_MODE = re.compile(r"0[4-7][0-7]{2}")
_MODE_RULE = "must be octal digits that let the owner read, such as 0400, 0444 or 0555 (without set-user-ID)"


_DEVICE_TYPES = ("auto", "cuda", "cpu")
_GPU_COUNT = says("Devices per node, at least 1: GPUs or CPU slots")
_DEVICE_TYPE = says("auto: cuda if any node has a GPU or a GPU field is set, else CPU slots")
_GPU_FRACTION = says("Fraction of one GPU, in steps of 0.01; other jobs may share the rest. Default 1: the whole GPU")
_GPU_MEMORY_REQUEST = says("Instead of gpu_fraction: the fraction of one GPU with this memory")
_MIG_PROFILE = says("Instead of a whole GPU, a MIG slice, named as by nvidia-smi: 1g.10gb")
_PROFILE_RULE = "must be a MIG profile, such as 1g.10gb or 1g.10gb+me"
_SIZE = (
    "For memory: its size; 0: half of the machine's memory. For empty, and for all of a claim that the job writes to: "
    "what it may hold; above it the job fails with DISK_LIMIT_EXCEEDED; 0: no limit of its own"
)
_NODE_COUNT = says("Number of nodes with gpu_count devices each, allocated together (gang scheduling)")


class ResourceLimitsSchema(JobPartSchema):
    ram_mb = Whole(
        0, MAX_MB, **says("Memory of all processes together; at it the kernel ends the job with HOST_OUT_OF_MEMORY")
    )
    cpu_cores = Number(0, 65536, **says("Processor time per second, in cores; at it the processes wait"))
    processes = Whole(0, 2**22, **says("Processes and threads; at it no more can be started"))
    storage_mb = Whole(
        0,
        MAX_MB,
        **says(
            "Files in the run directory while the job runs, with checkpoints that wait to be stored; above it the job "
            "fails with DISK_LIMIT_EXCEEDED"
        ),
    )
    shm_mb = Whole(0, MAX_MB, **says("Files in /dev/shm; 0: half of the machine's memory. They count as memory, too"))
    open_files = Whole(
        0, 2**30, **says("Open files of each process, at least 256; 0: what the node's worker has. The soft limit, too")
    )
    stack_mb = Whole(0, MAX_MB, **says("Stack of each process and thread, at least 8; 0: what the node's worker has"))
    locked_mb = Whole(
        0, MAX_MB, **says("Memory that each process may lock, as for RDMA; 0: what the node's worker has")
    )
    read_mb_per_second = Whole(0, MAX_MB, **says("What the job reads from each disk of a node; at it reading waits"))
    write_mb_per_second = Whole(0, MAX_MB, **says("What the job writes to each disk of a node; at it writing waits"))
    reads_per_second = Whole(0, 2**31 - 1, **says("Read operations of the job on each disk of a node"))
    writes_per_second = Whole(0, 2**31 - 1, **says("Write operations of the job on each disk of a node"))
    required = Flag(**says("Default true: only nodes that can hold the limits run the job; false: others do, without"))


class MountedFileSchema(JobPartSchema):
    name = Matching(
        _FILE_NAME,
        "must be a file name of letters, digits, dots, dashes and underscores, of at most 253 characters",
        required=True,
        **says("Its name in the directory, such as config.yaml"),
    )
    content = Text(
        longest=65_536,
        required=True,
        **says("Its text; stored encrypted and shown as ***, since it may be a secret, and masked in the job's log"),
    )


class MountSchema(JobPartSchema):
    path = Text(
        longest=1024, shortest=1, required=True, **says("The absolute path at which the job's processes find it")
    )
    type = Choice(
        MOUNT_TYPES,
        required=True,
        **says(
            "data, model, code: that input, read-only; output: the output directory; empty: an empty directory of the "
            "attempt; memory: an empty directory in memory; files: a read-only directory in memory with files of the "
            "document; claim: a volume claim of the project, writable"
        ),
    )
    source = Whole(0, 999, **says("For data: the index in data_config.sources", default=Mount.source))
    sub_path = Text(longest=1024, **says("A file or directory in it; default all of it"))
    size_mb = Whole(0, MAX_MB, **says(_SIZE, default=Mount.size_mb))
    files = fields.List(
        fields.Nested(MountedFileSchema),
        validate=validate.Length(max=64),
        **says("For files: configuration and secrets, readable by the job alone"),
    )
    mode = Matching(
        _MODE,
        _MODE_RULE,
        **says("For files: their permissions, such as 0555 for scripts; default 0400. The job never writes to them"),
    )
    claim = Matching(CLAIM_NAME, CLAIM_RULE, **says("For claim: its name, as in pvc://NAME"))
    read_only = Flag(**says("For claim: the job can't write to it", default=Mount.read_only))
    create = Flag(**says("For claim: make it, empty, where the project has none of the name", default=Mount.create))
    required = Flag(**says("Default true: only nodes with a sandbox run the job; false: others do, without the mount"))


class ImageSchema(JobPartSchema):
    reference = Text(
        longest=1024,
        shortest=1,
        required=True,
        **says(
            "REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST; or oci:DIRECTORY[:TAG], oci-archive:FILE or "
            "docker-archive:FILE of a storage root"
        ),
    )
    pull_policy = Choice(
        PULL_POLICIES,
        **says(
            "if_missing: a node that has used the reference for the project keeps that image; always: it asks the "
            "registry; never: it must have the image",
            default=Image.pull_policy,
        ),
    )
    read_only = Flag(
        **says(
            "true: the job can write to its own directories alone; false: also to a copy of the image's files that is "
            "deleted with the attempt",
            default=Image.read_only,
        )
    )


class RegistryLoginSchema(JobPartSchema):
    registry = Text(
        longest=1024,
        shortest=1,
        required=True,
        **says("HOST[:PORT] as references name it, or HOST[:PORT]/PATH for the repositories below; docker.io is one"),
    )
    username = Text(longest=1024, shortest=1, required=True, **says("The user, without a colon"))
    password = Text(
        longest=8192,
        shortest=1,
        required=True,
        **says("Or a token that is used as one; stored encrypted, shown as ***; for this registry alone"),
    )


class UserSchema(JobPartSchema):
    uid = Whole(1, MAX_ID, rule=NOT_ROOT, **says("The user ID, such as 1000. No job runs as root"))
    gid = Whole(
        0, MAX_ID, **says("The group ID. Default: that of the user in the image's /etc/passwd, else equal to uid")
    )
    required = Flag(**says("Default true: only nodes with a sandbox run the job; false: others do, as their own user"))


class ResourceConfigSchema(JobPartSchema):
    # 0 is rejected elsewhere, with a more helpful message than a range error.
    gpu_count = Whole(0, 65536, load_default=ResourceConfig.gpu_count, **_GPU_COUNT)
    gpu_type = OneOrSeveral(
        longest=64,
        most=16,
        **says("A GPU type, optionally with a memory size: A100-80GB; or a list of alternatives; default any"),
    )
    gpu_memory_min_mb = Whole(0, MAX_MB, **says("Minimum memory of each GPU, or of the requested fraction"))
    gpu_fraction = Number(0.01, 1, **_GPU_FRACTION)
    gpu_memory_request_mb = Whole(1, MAX_MB, **_GPU_MEMORY_REQUEST)
    mig_profile = Matching(MIG_PROFILE, _PROFILE_RULE, **_MIG_PROFILE)
    cpu_cores = Whole(
        0,
        65536,
        **says(
            "CPU cores to reserve per node; the ranks share them as threads. Default: each device's share of the "
            "node's cores"
        ),
    )
    ram_min_mb = Whole(0, MAX_MB, **says("Memory to reserve per node"))
    storage_min_mb = Whole(0, MAX_MB, **says("Disk space to reserve per node"))
    limits = SectionField(ResourceLimitsSchema, **says("What the job may use at most, per node; 0: no limit"))
    mounts = fields.List(
        fields.Nested(MountSchema),
        validate=validate.Length(max=64),
        **says("Paths at which a CUSTOM script finds its inputs, code and outputs, and empty directories"),
    )
    image = SectionField(
        ImageSchema, **says("The container image of a CUSTOM script or command; default: the node's programs")
    )
    registry_logins = fields.List(
        fields.Nested(RegistryLoginSchema),
        validate=validate.Length(max=16),
        **says("What opens the registries of images, instead of the operator's logins; the longest that fits an image"),
    )
    user = SectionField(
        UserSchema,
        **says("User and group IDs of the job's processes inside their sandbox; default: the image's, else 1000"),
    )
    network = Choice(
        NETWORKS,
        **says(
            "none: a job on one node has loopback alone; gate: it also reaches the services of its project's list "
            "through an HTTP proxy",
            default=ResourceConfig.network,
        ),
    )
    device_type = Choice(_DEVICE_TYPES, load_default=ResourceConfig.device_type, **_DEVICE_TYPE)
    node_count = Whole(1, 65536, load_default=ResourceConfig.node_count, **_NODE_COUNT)
    required_node_labels = Texts(
        form=LABEL_CONSTRAINT,
        rule=LABEL_CONSTRAINT_RULE,
        **says("Labels that the node must have, all of them; `a|b` requires either. A node's name is also a label"),
    )
    forbidden_node_labels = Texts(**says("Labels or names of nodes that must not run the job"))
    node_affinity = Texts(
        form=LABEL_CONSTRAINT,
        rule=LABEL_CONSTRAINT_RULE,
        **says("Preferred labels or names; more matches are better, and `a|b` matches either"),
    )
    node_anti_affinity = Texts(**says("Labels or names of nodes to avoid while others are free"))
    force_fit = Flag(
        **says("true: accept the job although its memory estimate says that no device has enough", default=False)
    )


class NewResourceConfigSchema(ResourceConfigSchema):
    """Overrides for a retry: omitted fields stay as in the original job; "" and 0 remove its value."""

    gpu_count = Whole(0, 65536, **_GPU_COUNT)
    gpu_fraction = Number(0, 1, **_GPU_FRACTION)
    gpu_memory_request_mb = Whole(0, MAX_MB, **_GPU_MEMORY_REQUEST)
    mig_profile = Matching(re.compile(f"|{MIG_PROFILE.pattern}"), _PROFILE_RULE, **_MIG_PROFILE)
    device_type = Choice(_DEVICE_TYPES, **_DEVICE_TYPE)
    node_count = Whole(1, 65536, **_NODE_COUNT)


OF_RESOURCES = (  # that a planned evaluation has
    *("gpu_count", "device_type", "gpu_type", "gpu_memory_min_mb", "gpu_fraction", "cpu_cores", "ram_min_mb"),
    "required_node_labels",
)


class PlannedResourcesSchema(ResourceConfigSchema):
    device_type = Choice(_DEVICE_TYPES, **_DEVICE_TYPE)  # without one, that of the training

    class Meta:
        fields = OF_RESOURCES
