"""Rules of ``tracking``: where a job's metrics are sent, besides the database."""

import re
from urllib.parse import unquote, urlsplit

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.locations.hosts import address_of, is_allowed
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.locations.service_urls import check_service_url
from app.domain.spec.model import MLFLOW, WANDB, JobDocument, Tracker
from app.domain.spec.secrets import MASK
from app.domain.suggestions import did_you_mean

TRACKIO = "trackio"
KINDS = (MLFLOW, WANDB)
WANDB_URL = "https://api.wandb.ai"
MOST_TRACKERS = 4
ALLOW_SETTING = "TRAINYARD_TRACKING_ALLOW"

_BELOW = {MLFLOW: "/api/2.0/mlflow", WANDB: "/graphql"}
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ODD = r"/\#?%:"
# What W&B's client (0.31) takes for a page of W&B's instead of its API, and the hosts that it replaces by others.
_OF_WANDB = re.compile(r"wandb\.ai[^.]*$")
_FORGE_HOSTS = ("forge.coreweave.com", "qa.forge.coreweave.com")
_SHORTEST_KEY, _LONGEST_PROJECT = 40, 128  # of the same client
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_KEY = re.compile(rf"[\w-]{{{_SHORTEST_KEY},}}", re.ASCII)
_NOT_IN_WANDB = re.compile(rf"[{re.escape(_ODD)}\s]")  # of a project, and of an entity
_USERNAME = re.compile(r"[\x21-\x39\x3b-\x7e]+")  # without a colon, which ends it in the header


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for the first tracking service that can't be served."""
    seen: set[tuple[str, int, str, str, str]] = set()
    for number, tracker in enumerate(document.tracking):
        field = f"tracking.{number}"
        _check_kind(tracker, field)
        _check_url(tracker, rules, field)
        _check_login(tracker, field)
        _check_wandb(tracker, field)
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
    if tracker.kind == TRACKIO:
        raise NotSupportedYet(
            f"kind {TRACKIO} is not served: its protocol is documented for its own client alone; use another: "
            f"{', '.join(KINDS)}",
            field=f"{field}.kind",
        )
    if tracker.kind not in KINDS:
        known = ", ".join(KINDS) + did_you_mean(tracker.kind, KINDS)
        raise BadSpec(f"unknown kind {tracker.kind[:64]!r}; known: {known}", field=f"{field}.kind")


def _check_url(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    if tracker.kind == WANDB and tracker.url is None:
        return
    if not tracker.url:
        raise BadSpec(
            f"kind {tracker.kind} needs url, the tracking server's address, such as https://mlflow.example",
            field=f"{field}.url",
        )
    if "?" in tracker.url:
        below = _BELOW[tracker.kind]
        raise BadSpec(f"the URL has no query; give the address below which {below} is", field=f"{field}.url")
    check_service_url(
        tracker.url,
        rules.tracking_allow,
        what="a tracking server is an address such as https://host/path",
        instead="give token, and username where the server wants one",
        setting=ALLOW_SETTING,
        field=f"{field}.url",
    )
    if tracker.kind != WANDB:
        return
    if not _is_api_of_wandb(tracker.url):
        raise BadSpec(
            f"W&B's client does not take this address; the one of W&B's own server is {WANDB_URL}, the default",
            field=f"{field}.url",
        )
    if _is_past_proxies(tracker.url):
        raise BadSpec(
            "W&B's client is kept from the network by a proxy, which takes names and IPv4 addresses, and it goes to "
            "loopback hosts past every proxy; give another name or address of this server",
            field=f"{field}.url",
        )


def _is_api_of_wandb(url: str) -> bool:
    """False for the addresses of W&B's that its client refuses: those of its pages, and its API over http. The client
    compares the text as it is written.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if host in _FORGE_HOSTS:
        return False
    is_host = host.endswith("wandb.ai")
    if not is_host and _OF_WANDB.search(url) is None:
        return True
    return "api." in (parts.netloc if is_host else url) and url.startswith("https")


def _is_past_proxies(url: str) -> bool:
    host = (urlsplit(url).hostname or "").rstrip(".")
    address = address_of(host)
    return host == "localhost" or (address is not None and (address.is_loopback or address.version == 6))


def _check_wandb(tracker: Tracker, field: str) -> None:
    """What differs from other kinds."""
    if tracker.kind != WANDB:
        if tracker.entity:
            raise BadSpec(f"only kind {WANDB} has an entity; leave it out", field=f"{field}.entity")
        return
    if tracker.username:
        raise BadSpec(f"kind {WANDB} has no username; give the API key as token", field=f"{field}.username")
    if not tracker.token:
        raise BadSpec(f"kind {WANDB} needs token, an API key of the server", field=f"{field}.token")
    if tracker.token != MASK and not _is_key(tracker.token):
        raise BadSpec(
            f"a key of W&B has at least {_SHORTEST_KEY} letters, digits, _ and -, behind a prefix that ends with - if "
            "it has one; copy the whole key",
            field=f"{field}.token",
        )
    if len(tracker.experiment or "") > _LONGEST_PROJECT:
        raise BadSpec(
            f"a project of W&B has at most {_LONGEST_PROJECT} characters; give a shorter name",
            field=f"{field}.experiment",
        )
    for name, value in (("experiment", tracker.experiment), ("entity", tracker.entity)):
        if value is not None and _NOT_IN_WANDB.search(value) is not None:
            raise BadSpec(f"W&B takes no spaces and none of the characters {_ODD} in names", field=f"{field}.{name}")


def _is_key(token: str) -> bool:
    """By the rule of W&B's client, which asks no server with another key."""
    secret = token.partition("-")[2] if "-" in token else token
    return _JWT.fullmatch(token) is not None or _KEY.fullmatch(secret) is not None


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


def _place(tracker: Tracker, rules: ReadingRules) -> tuple[str, int, str, str, str]:
    """Where the run is: two that write to the same one would overwrite each other's notes in it."""
    parts = urlsplit(tracker.url or WANDB_URL)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").rstrip(".")
    return host, port, unquote(parts.path).rstrip("/"), tracker.entity or "", tracker.experiment or rules.project
