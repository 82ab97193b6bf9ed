"""The context of one attempt: its work order, and where its results are stored."""

from dataclasses import dataclass

from app.database.engine import Database
from app.services.attempts.work_orders import WorkOrder
from app.storage.storage import Storage
from config.redaction import Redaction
from workers.run_dir.layout import RunDirectory


@dataclass(frozen=True, kw_only=True)
class AttemptContext:
    """``redaction`` masks the job's secrets in everything that is shown."""

    db: Database
    storage: Storage
    work: WorkOrder
    run: RunDirectory
    redaction: Redaction
