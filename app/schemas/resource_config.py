"""The devices and the machine that a job needs."""

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Text, Texts, Whole

_MOST_MB = 2**40  # an exabyte; what comes after it is a typing error


class ResourceConfigSchema(DocumentSchema):
    gpu_count = Whole(0, 65536, load_default=1)  # 0 is refused with more to say than a range has
    gpu_type = Text(longest=64)
    gpu_memory_min_mb = Whole(0, _MOST_MB)
    cpu_cores = Whole(0, 65536)
    ram_min_mb = Whole(0, _MOST_MB)
    storage_min_mb = Whole(0, _MOST_MB)
    device_type = Choice(("auto", "cuda", "cpu"), load_default="auto")
    node_count = Whole(1, 65536, load_default=1)
    node_affinity = Texts()
    node_anti_affinity = Texts()
