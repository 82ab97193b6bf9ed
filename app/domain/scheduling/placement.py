"""Placement: the devices of one node, or of several, on which a job starts. Pure."""

from dataclasses import dataclass

from app.domain.scheduling.filters import share_on
from app.domain.scheduling.gang_placement import Part
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device
from app.domain.units import WHOLE


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``node`` and ``devices`` are those of the first part; ``others`` the further parts of a gang, by name of node."""

    job_id: str
    node: str
    devices: tuple[Device, ...]
    share: int = WHOLE  # of each device, in hundredths
    others: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return Part(node=self.node, devices=self.devices), *self.others


@dataclass(frozen=True)
class Option:
    """A node where a request can start now."""

    name: str
    devices: tuple[Device, ...]

    def given_to(self, job: QueuedJob) -> Placement:
        share = share_on(job.request, self.devices[0])
        return Placement(job_id=job.job_id, node=self.name, devices=self.devices, share=share)
