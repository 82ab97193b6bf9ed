"""Settings of uploaded files: how large they may be, and how long an upload in parts may take."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class FilesSettings:
    max_bytes: int = setting(512 << 20, "largest file that is uploaded by one request", rules.at_least_one)
    upload_max_bytes: int = setting(8 << 30, "largest file that is uploaded in parts", rules.at_least_one)
    part_max_bytes: int = setting(64 << 20, "largest part of an upload", rules.at_least_one)
    line_max_bytes: int = setting(1 << 20, "longest line of an uploaded file of records", rules.at_least_one)
    upload_seconds: int = setting(3600, "an upload in parts that is not completed expires after this time")
    max_live_batches: int = setting(
        100, "most batches of one project that have not ended; 0: any number", rules.not_negative
    )
