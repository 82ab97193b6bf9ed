"""Checks before the training whether the model can be published to the job's destinations, to fail early."""

import logging

from app.services.attempts.work_orders import Work
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.publishing.runner import Publication, publish_options

log = logging.getLogger(__name__)


def check_output(settings: Settings, work: Work) -> None:
    """Check destination and token. Raises AttemptFailed for problems that only the user or the administrator can fix.

    Problems that may disappear before the training ends, such as an unavailable hub, are only logged.
    """
    if not publish_options(work):
        return
    found = Publication(settings, work, None).carry_out()
    for failure in found.passing:
        log.warning("the model could not be published now; that may change: %s", failure)
    if found.failures:
        raise AttemptFailed("INVALID_CONFIG", "; ".join(found.failures))
