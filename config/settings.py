"""Frozen settings, one class per concern; with `config.environment` the only reader of the environment.

``TRAINYARD_<CONCERN>_<FIELD>`` becomes ``settings.<concern>.<field>``. All problems are reported at once, and an
unknown ``TRAINYARD_…`` variable is a problem too: a typo must not be ignored.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from config.api import ApiSettings, ThreadShares, thread_shares
from config.environment import CLIENT_VARIABLES
from config.fetching import CacheSettings, FetchSettings
from config.files import FilesSettings
from config.gateway import GatewaySettings, ServingSettings
from config.images import ImageSettings
from config.node import NodeSettings
from config.oidc import OidcSettings
from config.packages import PackagesSettings
from config.publishing import PublishSettings
from config.redaction import masked_forms
from config.retention import RetentionSettings
from config.scheduling import QuarantineSettings, SchedulerSettings, ScoreSettings
from config.smtp import SmtpSettings
from config.storage import StorageSettings
from config.sweeps import SweepSettings
from config.tracking import TrackingSettings
from config.values import rules
from config.values.fields import setting
from config.watchdog import WatchSettings
from config.web import WebSettings
from config.webhooks import WebhookSettings


class SettingsError(Exception):
    """The environment does not form valid settings; ``problems`` lists every problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("invalid settings:\n  " + "\n  ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    dir: Path = setting(Path("~/.local/share/trainyard"), "directory of the embedded database, files, keys and logs")


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    url: str = setting(
        "", "SQLAlchemy URL; empty: SQLite in the data directory (started alone: that of the last `trainyard up`)"
    )
    busy_seconds: float = setting(5.0, "how long a SQLite writer waits for another; connect timeout for PostgreSQL")
    pool_size: int = setting(10, "connections per process (PostgreSQL)", rules.at_least_one)


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    url: str = setting("", "Redis URL of broker and result backend; empty: the one recorded by `trainyard up`")
    socket_timeout_seconds: float = setting(10.0, "timeout of broker connections")
    publish_timeout_seconds: float = setting(2.0, "timeout for publishing wake-ups from the API")
    result_expires_seconds: int = setting(90 * 86400, "how long mirrored job states stay in the result backend")


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    ttl_seconds: float = setting(15.0, "a lease whose counter has not changed for this long is revoked")
    renew_seconds: float = setting(2.0, "how often a supervisor renews its lease and reads its job's control requests")
    fence_seconds: float = setting(10.0, "a supervisor that could not renew for this long is killed by the kernel")
    kill_grace_seconds: float = setting(3.0, "time between SIGTERM and SIGKILL for ranks")


@dataclass(frozen=True, kw_only=True)
class PreflightSettings:
    enabled: bool = setting(True, "coordinators run a preflight for jobs of built-in trainers before they are queued")
    rows: int = setting(1000, "records of each source that a preflight reads and tokenizes", rules.at_least_one)
    fetch_bytes: int = setting(
        64 << 20,
        "maximum size of data behind URIs, and of models without their weights, that a preflight fetches",
        rules.not_negative,
    )
    timeout_seconds: float = setting(120.0, "a preflight that takes longer is aborted, and the job is left to its node")
    memory_mb: int = setting(
        4096, "memory limit of one preflight; beyond it the job is left to its node", rules.at_least_one
    )
    processes: int = setting(0, "concurrent preflights; 0: half of the cores, at most 2", rules.not_negative)
    waiting: int = setting(20, "pending preflights above which jobs skip preflight", rules.at_least_one)


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    secret_key: str = setting("", "key that encrypts stored secrets; empty: the key file in the data directory")
    secrets_dir: Path | None = setting(
        None, "secrets referenced by documents of other vocabularies, as files PROJECT/NAME/KEY; empty: `DIR/secrets`"
    )


@dataclass(frozen=True, kw_only=True)
class FlowerSettings:
    host: str = setting("127.0.0.1", "address Flower listens on; outside loopback, put a TLS proxy in front")
    port: int = setting(5555, "port of Flower", rules.port)
    user: str = setting("admin", "Flower's user", rules.flower_user)
    password: str = setting(
        "", "Flower's password; empty: the one in the data directory's flower.password", rules.flower_login
    )


@dataclass(frozen=True, kw_only=True)
class TensorboardSettings:
    host: str = setting("127.0.0.1", "address TensorBoard listens on; outside loopback, put a TLS proxy in front")
    port: int = setting(5556, "port of TensorBoard; not 6006, where mpirun sees an X server", rules.port)
    url: str = setting("", "URL at which browsers reach TensorBoard; empty: not shown, `trainyard up` sets its own")
    most: int = setting(8, "maximum number of concurrent TensorBoards, about 150 MB each", rules.at_least_one)
    idle_seconds: float = setting(900.0, "a TensorBoard without requests ends after this time")


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    level: str = setting("INFO", "lowest level that processes log", rules.log_level)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The complete configuration of a Trainyard process."""

    data: DataSettings
    database: DatabaseSettings
    broker: BrokerSettings
    storage: StorageSettings
    fetch: FetchSettings
    cache: CacheSettings
    images: ImageSettings
    packages: PackagesSettings
    publish: PublishSettings
    lease: LeaseSettings
    watch: WatchSettings
    scheduler: SchedulerSettings
    score: ScoreSettings
    quarantine: QuarantineSettings
    preflight: PreflightSettings
    sweep: SweepSettings
    files: FilesSettings
    api: ApiSettings
    gateway: GatewaySettings
    serving: ServingSettings
    node: NodeSettings
    retention: RetentionSettings
    webhook: WebhookSettings
    smtp: SmtpSettings
    tracking: TrackingSettings
    security: SecuritySettings
    flower: FlowerSettings
    tensorboard: TensorboardSettings
    web: WebSettings
    oidc: OidcSettings
    log: LogSettings

    @property
    def thread_shares(self) -> ThreadShares:
        """How the request threads of an API process are divided."""
        return thread_shares(self.api, viewers=self.web.max_streams if self.web.enabled else None)

    @property
    def admin_key_file(self) -> Path:
        return self.data.dir / "admin.key"

    @property
    def secret_key_file(self) -> Path:
        return self.data.dir / "secret.key"

    @property
    def broker_url_file(self) -> Path:
        return self.data.dir / "broker.url"

    @property
    def database_url_file(self) -> Path:
        return self.data.dir / "database.url"

    @property
    def storage_roots(self) -> tuple[Path, ...]:
        """Directories that jobs may read: the stored files and the configured roots."""
        return (self.data.dir / "files", *self.storage.roots)


# Variables with the same prefix that a rank finds in its environment.
RANK_VARIABLES = frozenset(
    {
        "TRAINYARD_JOB_ID",
        "TRAINYARD_ATTEMPT",
        "TRAINYARD_NODE",
        "TRAINYARD_GPU_MEMORY_FRACTION",
        "TRAINYARD_RUN_DIR",
        "TRAINYARD_OUTPUT_DIR",
        "TRAINYARD_MODEL",
        "TRAINYARD_SPEC",
        "TRAINYARD_CHANNEL",
    }
)
_hints = cache(get_type_hints)  # takes as long as all else of reading settings
_DATA_OF_A_RANK = re.compile(r"TRAINYARD_DATA_[0-9]+")


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment (the process's own by default).

    Raises SettingsError with every problem at once.
    """
    env = os.environ if environ is None else environ
    problems: list[str] = []
    known = set(CLIENT_VARIABLES | RANK_VARIABLES)
    concerns: dict[str, Any] = {}
    for concern, cls in _hints(Settings).items():
        values: dict[str, Any] = {}
        for name, kind in _hints(cls).items():
            variable = variable_name(concern, name)
            known.add(variable)
            if variable in env:
                try:
                    values[name] = _checked(cls, name, _parse(kind, env[variable]))
                except ValueError as error:
                    problems.append(f"{variable}={_shown(name, env[variable])}: {error}")
        concerns[concern] = cls(**values)
    problems += [
        f"{name} is not a setting; docs/reference/settings.md lists them"
        for name in sorted(env)
        if name.startswith("TRAINYARD_") and name not in known and not _DATA_OF_A_RANK.fullmatch(name)
    ]
    settings = _complete(Settings(**concerns))
    problems += _contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def variable_name(concern: str, name: str) -> str:
    """The environment variable of one field."""
    return f"TRAINYARD_{concern}_{name}".upper()


def settings_table() -> list[tuple[str, str, str]]:
    """(variable, default, meaning) of every setting, in the order of the classes."""
    rows = []
    for concern, cls in get_type_hints(Settings).items():
        for f in fields(cls):
            default = ":".join(map(str, f.default)) if isinstance(f.default, tuple) else f.default
            shown = "" if default is None else str(default)
            rows.append((variable_name(concern, f.name), shown, f.metadata["meaning"]))
    return rows


def _checked(cls: type, name: str, value: object) -> object:
    rule: rules.Rule | None = next(f for f in fields(cls) if f.name == name).metadata["rule"]
    if rule is None and name.endswith("_seconds"):
        rule = rules.positive_seconds
    if rule is not None:
        rule(value)
    return value


def _shown(name: str, raw: str) -> str:
    return "…" if name in _SECRET else masked_forms(repr(raw))


def _parse(kind: object, raw: str) -> object:
    parser = _PARSERS.get(kind)
    if parser is not None:
        return parser(raw)
    if kind == tuple[Path, ...]:
        return tuple(Path(part).expanduser().resolve() for part in raw.split(":") if part)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if type(None) in get_args(kind):
        return Path(raw).expanduser() if raw else None
    raise TypeError(f"no parser for settings of type {kind}")


def _parse_bool(raw: str) -> bool:
    values = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if raw.lower() not in values:
        raise ValueError("expected one of 1, 0, true, false, yes, no")
    return values[raw.lower()]


_SECRETS_OF_OTHERS = {"s3_secret", "oci_secret", "obs_secret", "token_exchange_secret", "client_secret", "proxy_secret"}
_SECRET = frozenset({"password", "secret_key", *_SECRETS_OF_OTHERS})
_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: _parse_bool,
    Path: lambda raw: Path(raw).expanduser(),
}


def _complete(settings: Settings) -> Settings:
    """Fill in the defaults derived from the data directory."""
    data_dir = settings.data.dir.expanduser().absolute()
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    values["data"] = DataSettings(dir=data_dir)
    if not settings.database.url:
        own = _first_line(data_dir / "database.url") or own_sqlite(data_dir)
        values["database"] = replace(settings.database, url=own)
    if not settings.storage.url:
        values["storage"] = replace(settings.storage, url=f"file://{data_dir / 'files'}")
    if not settings.broker.url:
        values["broker"] = replace(settings.broker, url=_first_line(data_dir / "broker.url"))
    if not settings.security.secret_key:
        values["security"] = replace(settings.security, secret_key=_first_line(data_dir / "secret.key"))
    if not values["security"].secrets_dir:
        values["security"] = replace(values["security"], secrets_dir=data_dir / "secrets")
    values["fetch"] = _with_own_directories(settings.fetch, data_dir / "files")
    if not settings.flower.password:
        values["flower"] = replace(settings.flower, password=_first_line(data_dir / "flower.password"))
    return Settings(**values)


def _with_own_directories(fetch: FetchSettings, files: Path) -> FetchSettings:
    """With directories of the URI schemes for which nothing is configured."""
    own: dict[str, Any] = {
        f"{scheme}_dir": files / scheme
        for scheme in ("pvc", "oci", "obs")
        if fetch.directory_of(scheme) is None and not getattr(fetch, f"{scheme}_endpoint", "")
    }
    return replace(fetch, **own)


def own_sqlite(data_dir: Path) -> str:
    """The URL of the database in a data directory, the default when none is configured."""
    return f"sqlite:///{data_dir / 'trainyard.db'}"


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def _contradictions(settings: Settings) -> list[str]:
    problems = []
    lease = settings.lease
    if lease.fence_seconds + lease.kill_grace_seconds >= lease.ttl_seconds:
        problems.append(
            "TRAINYARD_LEASE_FENCE_SECONDS + TRAINYARD_LEASE_KILL_GRACE_SECONDS must be less than "
            f"TRAINYARD_LEASE_TTL_SECONDS ({lease.fence_seconds} + {lease.kill_grace_seconds} >= {lease.ttl_seconds}): "
            "an old attempt must be dead before a new one starts"
        )
    if lease.renew_seconds * 2 > lease.fence_seconds:
        problems.append("TRAINYARD_LEASE_RENEW_SECONDS must be at most half of TRAINYARD_LEASE_FENCE_SECONDS")
    if settings.node.heartbeat_seconds * 2 > settings.node.lost_seconds:
        problems.append("TRAINYARD_NODE_HEARTBEAT_SECONDS must be at most half of TRAINYARD_NODE_LOST_SECONDS")
    problems += settings.thread_shares.contradictions(settings.api.threads)
    problems += settings.oidc.contradictions()
    problems += settings.smtp.contradictions()
    problems += settings.fetch.contradictions()
    if settings.broker.url.startswith("rediss://") and "ssl_cert_reqs=required" not in settings.broker.url:
        # Without it redis-py accepts any certificate and only logs a warning.
        problems.append("TRAINYARD_BROKER_URL: rediss:// needs ?ssl_cert_reqs=required&ssl_ca_certs=FILE")
    return problems
