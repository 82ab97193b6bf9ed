"""The devices and the machine that a job needs."""

import re

from app.domain.names import LABEL_CONSTRAINT, LABEL_CONSTRAINT_RULE
from app.domain.scheduling.resources import MIG_PROFILE
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Matching, Number, OneOrSeveral, Texts, Whole, says

_MOST_MB = 2**40  # an exabyte; what comes after it is a typing error


_DEVICE_TYPES = ("auto", "cuda", "cpu")
_GPU_COUNT = says("Devices of one node, at least 1: GPUs or CPU slots")
_DEVICE_TYPE = says("auto: CUDA if any node has it or anything of a GPU is asked for, else CPU slots")
_GPU_FRACTION = says("The part of one GPU, in steps of 0.01; others may have the rest. 1, the default: all of it")
_GPU_MEMORY_REQUEST = says("Instead of gpu_fraction: as much of one GPU as has this memory")
_MIG_PROFILE = says("Instead of a GPU, a MIG slice of one, as nvidia-smi names it: 1g.10gb")
_PROFILE_RULE = "must be a MIG profile, such as 1g.10gb or 1g.10gb+me"
_NODE_COUNT = says("Nodes that each give gpu_count devices; the job gets all of them at once or none")


class ResourceConfigSchema(DocumentSchema):
    # 0 is refused with more to say than a range has.
    gpu_count = Whole(0, 65536, load_default=1, **_GPU_COUNT)
    gpu_type = OneOrSeveral(
        longest=64,
        most=16,
        **says("A chip, with a memory size if you like: A100-80GB; or a list, of which any will do; default any"),
    )
    gpu_memory_min_mb = Whole(0, _MOST_MB, **says("Memory that each GPU, or the part of it, has at least"))
    gpu_fraction = Number(0.01, 1, **_GPU_FRACTION)
    gpu_memory_request_mb = Whole(1, _MOST_MB, **_GPU_MEMORY_REQUEST)
    mig_profile = Matching(MIG_PROFILE, _PROFILE_RULE, **_MIG_PROFILE)
    cpu_cores = Whole(
        0,
        65536,
        **says(
            "Cores that are set aside on the node; the ranks share them as threads. Default: each device brings its "
            "part of the node's cores"
        ),
    )
    ram_min_mb = Whole(0, _MOST_MB, **says("Memory of the node that is set aside"))
    storage_min_mb = Whole(0, _MOST_MB, **says("Disk space of the node that is set aside"))
    device_type = Choice(_DEVICE_TYPES, load_default="auto", **_DEVICE_TYPE)
    node_count = Whole(1, 65536, load_default=1, **_NODE_COUNT)
    required_node_labels = Texts(
        form=LABEL_CONSTRAINT, rule=LABEL_CONSTRAINT_RULE,
        **says("Labels that the node must have, all of them, or of `a|b` one of the two; its name counts as one"),
    )  # fmt: skip
    forbidden_node_labels = Texts(**says("Labels, or names, of nodes that must not run the job"))
    node_affinity = Texts(
        form=LABEL_CONSTRAINT, rule=LABEL_CONSTRAINT_RULE,
        **says("Labels, or names, that are preferred, the more of them the better; of `a|b` one is enough"),
    )  # fmt: skip
    node_anti_affinity = Texts(**says("Labels, or names, of nodes that are avoided while others are free"))


class NewResourceConfigSchema(ResourceConfigSchema):
    """Of a retry: what is left out stays as the old job had it; "" and 0 take away what it asked for."""

    gpu_count = Whole(0, 65536, **_GPU_COUNT)
    gpu_fraction = Number(0, 1, **_GPU_FRACTION)
    gpu_memory_request_mb = Whole(0, _MOST_MB, **_GPU_MEMORY_REQUEST)
    mig_profile = Matching(re.compile(f"|{MIG_PROFILE.pattern}"), _PROFILE_RULE, **_MIG_PROFILE)
    device_type = Choice(_DEVICE_TYPES, **_DEVICE_TYPE)
    node_count = Whole(1, 65536, **_NODE_COUNT)
