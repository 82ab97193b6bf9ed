"""What an attempt leaves behind, as tests see it: devices out of service, and the events about them."""

from app.host import processes
from app.models import StuckDevice
from app.services.nodes import registry, stuck_devices
from app.services.nodes.stuck_devices import HeldDevices
from tests.systems.supervising import NODE, World, rows


def out_of_service(world: World) -> list[int]:
    return sorted({row.device_index for row in rows(world, StuckDevice)})


def offered(world: World) -> set[int]:
    with world.db.read() as session:
        (node,) = registry.capacities(session)
        return set(node.free)


def stuck_device_messages(world: World, job_id: str) -> list[str]:
    return [event.message for event in world.events(job_id) if event.reason == stuck_devices.REASON]


def held(job_id: str, *devices: int, attempt: int = 1, place: str = "") -> HeldDevices:
    return HeldDevices(node=NODE, devices=devices, job_id=job_id, attempt=attempt, place=place or processes.place())
