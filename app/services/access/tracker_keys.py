"""Keys of W&B that the operator stores for projects, for documents whose runs name a project of W&B and no key."""

from pathlib import Path

from app.domain.spec.model import WANDB, JobDocument, Tracker
from app.domain.spec.rules.tracking import KEY_FILE, KEY_SECRET, URL_FILE
from app.security.permissions import Caller
from app.services.access.secret_files import present_values

_FILES = {"token": (KEY_FILE,), "url": (URL_FILE,)}


def with_stored_keys(directory: Path | None, caller: Caller, project: str, document: JobDocument) -> JobDocument:
    """The document whose online runs of W&B without token and url have those of the project, if it has any.

    It stays as it is for a caller from elsewhere, whom a later check refuses.

    The key goes only to the server that is stored beside it, or to W&B's own: never to one that the document names.
    Raises BadSpec for a stored value that is no text.
    """
    lacking = [number for number, tracker in enumerate(document.tracking) if _lacks_key(tracker)]
    if directory is None or not lacking or not caller.sees(project):
        return document
    found = present_values(directory, project, KEY_SECRET, _FILES, field=f"tracking.{lacking[0]}.token")
    if "token" not in found:
        return document  # the rule about tracking says what is missing
    return document.changed(
        tracking=tuple(tracker.changed(**found) if _lacks_key(tracker) else tracker for tracker in document.tracking)
    )


def _lacks_key(tracker: Tracker) -> bool:
    return tracker.kind == WANDB and not tracker.is_offline and tracker.token is None and tracker.url is None
