"""Before anything is trained: could the model be carried to where the job wishes it? Days may hang on the answer."""

import logging

from app.services.attempts.work_orders import Work
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.publishing.runner import Publication, publish_options

log = logging.getLogger(__name__)


def check_output(settings: Settings, work: Work) -> None:
    """Try the place and the token. Raises AttemptFailed for what only the user or the administrator can mend.

    What may pass until the training ends, such as a hub that does not answer now, is only logged.
    """
    if not publish_options(work):
        return
    found = Publication(settings, work, None).carry_out()
    for failure in found.passing:
        log.warning("the model could not be published now; that may change: %s", failure)
    if found.failures:
        raise AttemptFailed("INVALID_CONFIG", "; ".join(found.failures))
