"""What keeps a backup from being made or put back."""

from app.domain.errors import TrainyardError


class BackupFailed(TrainyardError):
    """Nothing was changed; the message says what to do."""

    code = "BACKUP_FAILED"
