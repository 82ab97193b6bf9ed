"""The reading rules of this process: from which directories jobs may read here."""

import os

from app.domain.locations import ReadingRules
from config.settings import Settings


def reading_rules(settings: Settings) -> ReadingRules:
    """Links are followed: what counts is where a path really leads."""
    return ReadingRules(
        roots=tuple(map(str, settings.storage_roots)),
        data_dir=str(settings.data.dir),
        fetch_allow=settings.fetch.allow,
        real_path=os.path.realpath,
    )
