"""Keys of W&B that the operator stores for projects, for documents whose runs name a project of W&B and no key."""

from collections.abc import Mapping
from pathlib import Path

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import WANDB, JobDocument, Tracker
from app.domain.spec.rules.tracking import KEY_FILE, KEY_SECRET, URL_FILE, check_server
from app.security.permissions import Caller
from app.services.access.secret_files import present_values

_FILES = {"token": (KEY_FILE,), "url": (URL_FILE,)}


def with_stored_keys(directory: Path | None, caller: Caller, rules: ReadingRules, document: JobDocument) -> JobDocument:
    """The document whose online runs of W&B without token and url have those of the project, if it has any.

    It stays as it is for a caller from elsewhere, whom a later check refuses.

    The key goes only to the server that is stored beside it, or to W&B's own: never to one that the document names.
    ``rules`` are those of the project. Raises BadSpec for a stored file that can't be read or used.
    """
    lacking = [number for number, tracker in enumerate(document.tracking) if _lacks_key(tracker)]
    if directory is None or not lacking or not caller.sees(rules.project):
        return document
    field = f"tracking.{lacking[0]}"
    found = present_values(directory, rules.project, KEY_SECRET, _FILES, field=f"{field}.token")
    if "token" not in found:
        return document  # the rule about tracking says what is missing
    _check_stored(found, rules, field)
    return document.changed(
        tracking=tuple(tracker.changed(**found) if _lacks_key(tracker) else tracker for tracker in document.tracking)
    )


def _check_stored(found: Mapping[str, str], rules: ReadingRules, field: str) -> None:
    """Raises BadSpec that names the operator's file, which the document's author can't see."""
    try:
        check_server(Tracker(kind=WANDB, token=found["token"], url=found.get("url")), rules, field)
    except BadSpec as error:
        file = URL_FILE if error.field == f"{field}.url" else KEY_FILE
        raise BadSpec(
            f"the operator's file {rules.project}/{KEY_SECRET}/{file} below TRAINYARD_SECURITY_SECRETS_DIR, from which "
            f"this tracker takes its {'server' if file == URL_FILE else 'key'}, can't be used: {error.message}",
            field=f"{field}.token",
        ) from error


def _lacks_key(tracker: Tracker) -> bool:
    return tracker.kind == WANDB and not tracker.is_offline and tracker.token is None and tracker.url is None
