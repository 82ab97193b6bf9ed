"""Assembles the control plane from the settings."""

from app.database.engine import Database
from app.domain.sweeps.rules.limits import SweepLimits
from app.security.secrets import SecretBox
from app.services.nodes.capacity import ClusterInventory
from app.services.queues.waiting_jobs import WaitingLimit
from app.services.requests.control_plane import ControlPlane, Rings
from app.services.requests.storage_access import reading_rules
from app.services.scheduling.start_estimates import Estimates
from app.storage.storage import Storage
from config.settings import Settings


def control_plane(settings: Settings, db: Database, dispatcher: Rings) -> ControlPlane:
    return ControlPlane(
        db=db,
        dispatcher=dispatcher,
        storage=Storage(settings.storage.url),
        box=SecretBox(settings.security.secret_key),
        reading=reading_rules(settings),
        inventory=ClusterInventory(),
        estimates=Estimates(),
        waiting_limit=WaitingLimit(settings.scheduler.max_waiting_jobs),
        sweep_limits=SweepLimits(
            max_trials=settings.sweep.max_trials,
            max_parameters=settings.sweep.max_parameters,
            max_values=settings.sweep.max_values,
        ),
        files=settings.files,
        secrets_dir=settings.security.secrets_dir,
    )
