"""The part of NVML, NVIDIA's management library, that is used here. Its Python module pynvml has no types."""

# ruff: noqa: N802  (the library's names)

from collections.abc import Sequence
from typing import Protocol


class Memory(Protocol):
    """In bytes."""

    @property
    def total(self) -> int: ...

    @property
    def used(self) -> int: ...


class Utilization(Protocol):
    """In percent."""

    @property
    def gpu(self) -> int: ...


class PciInfo(Protocol):
    @property
    def domain(self) -> int: ...

    @property
    def bus(self) -> int: ...

    @property
    def device(self) -> int: ...


class Nvml(Protocol):
    """What all need. A handle is opaque, and every call may raise NVMLError."""

    @property
    def NVMLError(self) -> type[Exception]: ...

    @property
    def NVML_FEATURE_ENABLED(self) -> int: ...

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object: ...

    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Memory: ...


class LinkNvml(Nvml, Protocol):
    """For the NVLink topology."""

    @property
    def NVMLError_InvalidArgument(self) -> type[Exception]: ...

    @property
    def NVMLError_NotSupported(self) -> type[Exception]: ...

    @property
    def NVML_NVLINK_MAX_LINKS(self) -> int: ...

    @property
    def NVML_NVLINK_DEVICE_TYPE_GPU(self) -> int: ...

    @property
    def NVML_NVLINK_DEVICE_TYPE_SWITCH(self) -> int: ...

    def nvmlDeviceGetPciInfo(self, handle: object, /) -> PciInfo: ...

    def nvmlDeviceGetNvLinkState(self, handle: object, link: int, /) -> int: ...

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: object, link: int, /) -> int: ...

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: object, link: int, /) -> PciInfo: ...


class InventoryNvml(LinkNvml, Protocol):
    """For the GPUs of a machine and their MIG slices."""

    @property
    def NVML_DEVICE_MIG_ENABLE(self) -> int: ...

    def nvmlDeviceGetCount(self) -> int: ...

    def nvmlDeviceGetName(self, handle: object, /) -> str | bytes: ...

    def nvmlDeviceGetUUID(self, handle: object, /) -> str | bytes: ...

    def nvmlDeviceGetMigMode(self, handle: object, /) -> Sequence[int]: ...

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: object, /) -> int: ...

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: object, number: int, /) -> object: ...


class UsageNvml(Nvml, Protocol):
    """For the use and the faults of GPUs."""

    @property
    def NVML_MEMORY_ERROR_TYPE_UNCORRECTED(self) -> int: ...

    @property
    def NVML_VOLATILE_ECC(self) -> int: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str, /) -> object: ...

    def nvmlDeviceGetUtilizationRates(self, handle: object, /) -> Utilization: ...

    def nvmlDeviceGetTotalEccErrors(self, handle: object, kind: int, counter: int, /) -> int: ...

    def nvmlDeviceGetRemappedRows(self, handle: object, /) -> Sequence[int]: ...

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: object, /) -> int: ...
