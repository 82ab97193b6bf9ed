"""What one attempt stands on: its work order, and where what it says is kept."""

from dataclasses import dataclass

from app.database.engine import Database
from app.services.attempts.work_orders import Work
from app.storage.storage import Storage
from config.redaction import Redaction
from workers.run_dir.layout import RunDirectory


@dataclass(frozen=True, kw_only=True)
class AttemptContext:
    """``redaction`` knows what must stand in no text that people read."""

    db: Database
    storage: Storage
    work: Work
    run: RunDirectory
    redaction: Redaction
