"""Checks before the training whether model and logs can be published to the job's destinations, to fail early."""

import logging

from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.publishing.runner import Publication, Published, log_options, publish_options

log = logging.getLogger(__name__)


def check_output(settings: Settings, work: WorkOrder) -> None:
    """Check destination and token. Raises AttemptFailed for problems that only the user or the administrator can fix.

    Problems that may disappear before the training ends, such as an unavailable hub, are only logged. What a job has
    trained already is not given up for its logs: their place is checked before the first attempt alone.
    """
    found = Published()
    wanted = (publish_options(work), *([log_options(work)] if work.attempt == 1 else []))
    for options in filter(None, wanted):
        tried = Publication(settings, work, None, options=options).carry_out()
        found.failures += tried.failures
        found.passing += tried.passing
    for failure in found.passing:
        log.warning("it could not be published now; that may change: %s", failure)
    if found.failures:
        raise AttemptFailed("INVALID_CONFIG", "; ".join(found.failures))
