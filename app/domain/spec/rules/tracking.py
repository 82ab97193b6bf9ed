"""Rules of ``tracking``: where a job's metrics are sent, besides the database."""

import re
from urllib.parse import unquote, urlsplit

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.locations.hosts import address_of, is_allowed
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.locations.service_urls import check_service_url
from app.domain.spec.model import JobDocument, Tracker
from app.domain.suggestions import did_you_mean

MLFLOW, WANDB, TRACKIO = "mlflow", "wandb", "trackio"
KINDS = (MLFLOW,)
MOST_TRACKERS = 4
ALLOW_SETTING = "TRAINYARD_TRACKING_ALLOW"

_TOKEN = re.compile(r"[\x21-\x7e]+")
_USERNAME = re.compile(r"[\x21-\x39\x3b-\x7e]+")  # without a colon, which ends it in the header


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for the first tracking service that can't be served."""
    seen: set[tuple[str, int, str, str]] = set()
    for number, tracker in enumerate(document.tracking):
        field = f"tracking.{number}"
        _check_kind(tracker, field)
        _check_url(tracker, rules, field)
        _check_login(tracker, field)
        _check_token_is_safe(tracker, rules, field)
        place = _place(tracker, rules)
        if place in seen:
            raise BadSpec(
                "names the same url and experiment as an earlier one (without an experiment it is the project); leave "
                "one of them out",
                field=field,
            )
        seen.add(place)


def _check_kind(tracker: Tracker, field: str) -> None:
    if tracker.kind == WANDB:
        raise NotSupportedYet(
            f"kind {WANDB} is not served: its client connects past the check of addresses; leave it out and upload the "
            f"run yourself (`trainyard {WANDB} JOB`, then `wandb sync`), or use kind {MLFLOW}",
            field=f"{field}.kind",
        )
    if tracker.kind == TRACKIO:
        raise NotSupportedYet(
            f"kind {TRACKIO} is not served: its protocol is documented for its own client alone; use kind {MLFLOW}",
            field=f"{field}.kind",
        )
    if tracker.kind not in KINDS:
        known = ", ".join(KINDS) + did_you_mean(tracker.kind, KINDS)
        raise BadSpec(f"unknown kind {tracker.kind[:64]!r}; known: {known}", field=f"{field}.kind")


def _check_url(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    if not tracker.url:
        raise BadSpec(
            f"kind {tracker.kind} needs url, the tracking server's address, such as https://mlflow.example",
            field=f"{field}.url",
        )
    if "?" in tracker.url:
        raise BadSpec("the URL has no query; give the address below which /api/2.0/mlflow is", field=f"{field}.url")
    check_service_url(
        tracker.url,
        rules.tracking_allow,
        what="a tracking server is an address such as https://host/path",
        instead="give token, and username where the server wants one",
        setting=ALLOW_SETTING,
        field=f"{field}.url",
    )


def _check_login(tracker: Tracker, field: str) -> None:
    if tracker.token and _TOKEN.fullmatch(tracker.token) is None:
        raise BadSpec("a token has no spaces and only ASCII characters", field=f"{field}.token")
    if tracker.username and _USERNAME.fullmatch(tracker.username) is None:
        raise BadSpec("a username has no spaces, no colon and only ASCII characters", field=f"{field}.username")
    if tracker.username and not tracker.token:
        raise BadSpec("username needs its password; give it as token", field=f"{field}.token")


def _check_token_is_safe(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    parts = urlsplit(tracker.url or "")
    host = (parts.hostname or "").rstrip(".")
    if tracker.token and parts.scheme == "http" and not is_allowed(host, address_of(host), rules.tracking_allow):
        raise BadSpec(
            "http sends the token readable for others; use https, or have the administrator list this host in "
            f"{ALLOW_SETTING}",
            field=f"{field}.url",
        )


def _place(tracker: Tracker, rules: ReadingRules) -> tuple[str, int, str, str]:
    """Where the run is: two that write to the same one would overwrite each other's notes in it."""
    parts = urlsplit(tracker.url or "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").rstrip(".")
    return host, port, unquote(parts.path).rstrip("/"), tracker.experiment or rules.project
