"""The error of failed backups and restores."""

from app.domain.errors import TrainyardError


class BackupFailed(TrainyardError):
    """A backup or restore failed without changes; the message says what to do."""

    code = "BACKUP_FAILED"
