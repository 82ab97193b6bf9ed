"""Rules of ``tracking``: where a job's metrics are sent, or written for an upload, besides the database."""

import re
from urllib.parse import unquote, urlsplit

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.locations.hosts import address_of, is_allowed
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.locations.service_urls import check_service_url
from app.domain.spec.model import MLFLOW, OFFLINE, TRACKIO, WANDB, JobDocument, Tracker
from app.domain.spec.secrets import MASK
from app.domain.suggestions import did_you_mean

KINDS = (MLFLOW, TRACKIO, WANDB)
WANDB_URL = "https://api.wandb.ai"
MOST_TRACKERS = 4
ALLOW_SETTING = "TRAINYARD_TRACKING_ALLOW"
KEY_SECRET, KEY_FILE, URL_FILE = "wandb", "api_key", "base_url"  # of the project, among the operator's secret files
LONGEST_TAG, MOST_TAGS = 64, 32  # the former is W&B's

_BELOW = {MLFLOW: "/api/2.0/mlflow", TRACKIO: "/api", WANDB: "/graphql"}
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ODD = r"/\#?%:"
# What W&B's client (0.31) takes for a page of W&B's instead of its API, and the hosts that it replaces by others.
_OF_WANDB = re.compile(r"wandb\.ai[^.]*$")
_FORGE_HOSTS = ("forge.coreweave.com", "qa.forge.coreweave.com")
_SHORTEST_KEY, _LONGEST_PROJECT = 40, 128  # of the same client
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_KEY = re.compile(rf"[\w-]{{{_SHORTEST_KEY},}}", re.ASCII)
_SPACES, _HUBS = ".hf.space", ("huggingface.co", "www.huggingface.co", "hf.co")
_OF_TRACKIO = re.compile(r"[A-Za-z0-9_-]*")
_NOT_IN_WANDB = re.compile(rf"[{re.escape(_ODD)}\s]")  # of a project, and of an entity
_USERNAME = re.compile(r"[\x21-\x39\x3b-\x7e]+")  # without a colon, which ends it in the header


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for the first tracking service that can't be served."""
    seen: set[tuple[str, int, str, str, str]] = set()
    for number, tracker in enumerate(document.tracking):
        field = f"tracking.{number}"
        _check_kind(tracker, field)
        _check_mode(tracker, field)
        _check_url(tracker, rules, field)
        _check_login(tracker, field)
        _check_wandb(tracker, rules, field)
        _check_trackio(tracker, rules, field)
        _check_token_is_safe(tracker, rules, field)
        place = _place(tracker, rules)
        if place in seen:
            raise BadSpec(
                "names the same url and experiment as an earlier one (without an experiment it is the project); leave "
                "one of them out",
                field=field,
            )
        seen.add(place)
    offline = [number for number, tracker in enumerate(document.tracking) if tracker.is_offline]
    if len(offline) > 1:
        raise BadSpec(
            "a job is one offline run; leave the others out, wandb sync --project uploads it to other projects, too",
            field=f"tracking.{offline[1]}.mode",
        )


def check_server(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    """Raise BadSpec if the address or the key of this online run of W&B can't be used."""
    _check_url(tracker, rules, field)
    _check_key(tracker, rules, field)
    _check_token_is_safe(tracker, rules, field)


def _check_kind(tracker: Tracker, field: str) -> None:
    if tracker.kind not in KINDS:
        known = ", ".join(KINDS) + did_you_mean(tracker.kind, KINDS)
        raise BadSpec(f"unknown kind {tracker.kind[:64]!r}; known: {known}", field=f"{field}.kind")


def _check_mode(tracker: Tracker, field: str) -> None:
    if tracker.mode is not None and tracker.kind != WANDB:
        raise BadSpec(f"only kind {WANDB} has a mode; leave it out", field=f"{field}.mode")
    if not tracker.is_offline:
        return
    for name, value in (("url", tracker.url), ("username", tracker.username), ("token", tracker.token)):
        if value is not None:
            raise BadSpec(
                f"has no effect with mode {OFFLINE}, which sends nothing; leave it out, or the mode",
                field=f"{field}.{name}",
            )


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
        raise BadSpec(
            f"the URL has no query; give the address below which {below} is, and a token as token", field=f"{field}.url"
        )
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


def _check_wandb(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    """What differs from other kinds."""
    if tracker.kind != WANDB:
        if tracker.entity:
            raise BadSpec(f"only kind {WANDB} has an entity; leave it out", field=f"{field}.entity")
        if tracker.tags:
            raise BadSpec(
                f"only kind {WANDB} has tags; leave them out, labels of the job are tags of all kinds",
                field=f"{field}.tags",
            )
        return
    if tracker.username:
        raise BadSpec(f"kind {WANDB} has no username; give the API key as token", field=f"{field}.username")
    if not tracker.is_offline:
        _check_key(tracker, rules, field)
    _check_names(tracker, field)


def _check_key(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    if not tracker.token:
        place = f"{rules.project}/{KEY_SECRET}/{KEY_FILE} below TRAINYARD_SECURITY_SECRETS_DIR"
        raise BadSpec(
            f"kind {WANDB} needs token, an API key of the server. Without token and url, the project's own key is "
            f"used, which the operator stores as the file {place}. mode {OFFLINE} needs none",
            field=f"{field}.token",
        )
    if tracker.token != MASK and not _is_key(tracker.token):
        raise BadSpec(
            f"a key of W&B has at least {_SHORTEST_KEY} letters, digits, _ and -, behind a prefix that ends with - if "
            "it has one; copy the whole key",
            field=f"{field}.token",
        )


def _check_names(tracker: Tracker, field: str) -> None:
    if len(tracker.experiment or "") > _LONGEST_PROJECT:
        raise BadSpec(
            f"a project of W&B has at most {_LONGEST_PROJECT} characters; give a shorter name",
            field=f"{field}.experiment",
        )
    for name, value in (("experiment", tracker.experiment), ("entity", tracker.entity)):
        if value is not None and _NOT_IN_WANDB.search(value) is not None:
            raise BadSpec(f"W&B takes no spaces and none of the characters {_ODD} in names", field=f"{field}.{name}")


def _check_trackio(tracker: Tracker, rules: ReadingRules, field: str) -> None:
    if tracker.kind != TRACKIO:
        return
    if _is_space(tracker.url or ""):
        raise NotSupportedYet(
            "a Space of Hugging Face takes tokens of the hub, which are sent to no tracking server; give the address "
            "of a Trackio server of your own (trackio show --host), or upload the run to a Space from there (trackio "
            "sync)",
            field=f"{field}.url",
        )
    if tracker.username:
        raise BadSpec(f"kind {TRACKIO} has no username; give the write token as token", field=f"{field}.username")
    if not tracker.token:
        raise BadSpec(
            f"kind {TRACKIO} needs token, the server's write token, which trackio show prints", field=f"{field}.token"
        )
    project = tracker.experiment or rules.project
    if _OF_TRACKIO.fullmatch(project) is None:
        raise BadSpec(
            f"{project!r:.100}: Trackio keeps letters, digits, - and _ of a project's name and drops the rest, so that "
            "it would become another one; give experiment with these alone",
            field=f"{field}.experiment",
        )


def _is_space(url: str) -> bool:
    """Whether this is the address of a Space, or of its page on the hub."""
    parts = urlsplit(url)
    host, path = (parts.hostname or "").rstrip("."), re.sub(r"/+", "/", unquote(parts.path))
    return host.endswith(_SPACES) or (host in _HUBS and f"{path}/".startswith("/spaces/"))


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
