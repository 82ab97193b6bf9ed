"""The devices and the machine that a job needs."""

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Text, Texts, Whole, says

_MOST_MB = 2**40  # an exabyte; what comes after it is a typing error


class ResourceConfigSchema(DocumentSchema):
    # 0 is refused with more to say than a range has.
    gpu_count = Whole(0, 65536, load_default=1, **says("Devices of one node, at least 1: GPUs or CPU slots"))
    gpu_type = Text(longest=64, **says("A chip, with a memory size if you like: A100-80GB; default any"))
    gpu_memory_min_mb = Whole(0, _MOST_MB, **says("Memory that each GPU has at least"))
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
    device_type = Choice(
        ("auto", "cuda", "cpu"), load_default="auto", **says("auto: CUDA if any node has it, else CPU slots")
    )
    node_count = Whole(1, 65536, load_default=1, **says("Only 1 is supported yet"))
    node_affinity = Texts(**says("Not supported yet"))
    node_anti_affinity = Texts(**says("Not supported yet"))
