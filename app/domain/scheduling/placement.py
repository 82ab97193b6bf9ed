"""Placement: the devices of one node, or of several, on which a job starts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.scheduling.filters import share_on
from app.domain.scheduling.gang_placement import GangPart, PlacedInstance
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device
from app.domain.units import WHOLE


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``node``, ``devices`` and ``instances`` are those of the first part; ``others`` the further parts of a gang, by
    name of node.
    """

    job_id: str
    node: str
    devices: tuple[Device, ...]
    share: int = WHOLE  # of each device, in hundredths
    others: tuple[GangPart, ...] = ()
    instances: tuple[PlacedInstance, ...] = ()

    @classmethod
    def of(cls, job_id: str, parts: Sequence[GangPart]) -> "Placement":
        """The placement of a gang."""
        first, *others = parts
        return cls(
            job_id=job_id, node=first.node, devices=first.devices, instances=first.instances, others=tuple(others)
        )

    @property
    def parts(self) -> tuple[GangPart, ...]:
        return GangPart(node=self.node, devices=self.devices, instances=self.instances), *self.others

    @property
    def amounts(self) -> Mapping[str, float]:
        """Number of devices by kind."""
        found: dict[str, float] = {}
        for part in self.parts:
            for device in part.devices:
                kind = "cpu" if device.is_cpu else "cuda"
                found[kind] = found.get(kind, 0) + self.share
        return {kind: share / WHOLE for kind, share in found.items()}


@dataclass(frozen=True)
class PlacementOption:
    """A node where a request can start now."""

    name: str
    devices: tuple[Device, ...]

    def given_to(self, job: QueuedJob) -> Placement:
        share = share_on(job.request, self.devices[0])
        return Placement(job_id=job.job_id, node=self.name, devices=self.devices, share=share)
