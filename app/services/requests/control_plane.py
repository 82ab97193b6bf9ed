"""Dependencies of the API's use cases, created once by the factory."""

from dataclasses import dataclass, field
from typing import Protocol

from app.database.engine import Database
from app.domain.spec.locations.paths import ReadingRules
from app.security.secrets import SecretBox
from app.services.nodes.capacity import Inventory
from app.services.scheduling.start_estimates import Estimates
from app.storage.storage import Storage


class Rings(Protocol):
    """Wake-ups for other processes: they never block, never raise, and may get lost."""

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None: ...

    def nudge(self, job_id: str, node: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    db: Database
    dispatcher: Rings
    storage: Storage
    box: SecretBox
    reading: ReadingRules
    inventory: Inventory = field(default_factory=Inventory)
    estimates: Estimates = field(default_factory=Estimates)
