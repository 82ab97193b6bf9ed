"""The numbers that the driver gives MIG slices, by UUID; run as a program."""

import json
import sys
from collections.abc import Sequence

from workers.node.nvml import MigNvml


def instances_of(uuids: Sequence[str], nvml: MigNvml) -> list[tuple[int, int]]:
    """(GPU instance, compute instance) of each. Raises NVMLError."""
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return [(nvml.nvmlDeviceGetGpuInstanceId(each), nvml.nvmlDeviceGetComputeInstanceId(each)) for each in handles]
    finally:
        nvml.nvmlShutdown()


if __name__ == "__main__":
    import pynvml

    print(json.dumps(instances_of(sys.argv[1:], pynvml)))  # noqa: T201 – its result
