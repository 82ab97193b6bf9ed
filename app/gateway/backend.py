"""What the gateway asks the database, on a few threads, so that its event loop never waits; remembers for a second."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from app.domain.errors import CredentialsInvalid, CredentialsMissing, Forbidden, NotYours, TrainyardError
from app.domain.serving.document import ServiceDocument, ServiceLimits
from app.domain.serving.states import ServiceState
from app.domain.spec.locations.hosts import holder_of
from app.domain.token_bucket import Rate
from app.gateway.remembered import Remembered
from app.models import Service
from app.security import job_tokens
from app.security.late_buckets import LateBuckets
from app.security.permissions import Caller, Permission
from app.security.rate_limits import LocalBuckets, RateLimit
from app.services.access import api_keys, denied_requests, projects
from app.services.access.denied_requests import Denial, DenialThrottle
from app.services.attempts import job_callers
from app.services.requests.control_plane import ControlPlane
from app.services.serving import endpoints, loads, request_samples, routing, usage
from app.services.serving.endpoints import Endpoint
from app.services.serving.loads import Load
from app.services.serving.routing import Route
from app.services.serving.usage import UsageCounts, UsageKey
from config.settings import Settings

ROUTE_SECONDS = 0.9
CALLER_SECONDS = 0.9  # after which a revoked key is refused
VIEW_SECONDS = 0.5  # how old what is known of a service may be for a request
AHEAD = 2 / 3  # of these times: then what requests keep asking for is read anew, before one has to wait for it
ANONYMOUS = "anonymous"
_DENIED = (CredentialsInvalid, CredentialsMissing, Forbidden, NotYours)
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Who asks, as the request says."""

    key: str
    project: str  # that the request names, or ""
    address: str

    @property
    def digest(self) -> bytes:
        """Of what decides who asks, and whom failed authentications count against: memory holds no keys."""
        return hashlib.sha256(f"{self.project}\n{holder_of(self.address)}\n{self.key}".encode()).digest()


@dataclass(frozen=True)
class ServiceView:
    """A service as a request needs it; ``why`` says why there are no endpoints. ``logged_share``: of its requests."""

    name: str
    status: str
    limits: ServiceLimits
    endpoints: tuple[Endpoint, ...]
    why: str
    project: str = ""
    logged_share: float = 0.0


class GatewayBackend:
    """Thread-safe; the coroutines are for one event loop."""

    def __init__(self, settings: Settings, plane: ControlPlane, *, gateway_id: str) -> None:
        self._plane = plane
        self._gateway_id = gateway_id
        self._secret_key = settings.security.secret_key
        self._makes_services = settings.serving.auto
        self._threads = ThreadPoolExecutor(settings.gateway.threads, thread_name_prefix="gateway-db")
        self._callers = Remembered[bytes, Caller](seconds=CALLER_SECONDS, ahead=CALLER_SECONDS * AHEAD)
        self._routes = Remembered[tuple[str | None, str, str], Route](
            seconds=ROUTE_SECONDS, ahead=ROUTE_SECONDS * AHEAD
        )
        self._views = Remembered[str, ServiceView](seconds=VIEW_SECONDS, ahead=VIEW_SECONDS * AHEAD)
        self._denials = DenialThrottle()
        buckets = LateBuckets(settings.broker.url) if settings.broker.url else LocalBuckets()
        wrong = Rate(settings.api.wrong_keys_per_second, settings.api.wrong_keys_burst)
        self._wrong_keys = RateLimit(wrong, buckets)

    async def caller(self, credentials: Credentials) -> Caller:
        """Who asks, with the permission to. Raises Unauthenticated, LimitExceeded, Forbidden and NotFound."""
        return await self._callers.get(credentials.digest, lambda: self.on_thread(self._caller, credentials))

    async def holder(self, credentials: Credentials) -> Caller:
        """Whose key it is, whatever it permits. Raises Unauthenticated and LimitExceeded."""
        return await self.on_thread(self._holder, credentials)

    async def route(self, caller: Caller, model: str, task: str) -> Route:
        """The service that answers for the model; may make one. Raises NotFound and Conflict."""
        auto = self._makes_services
        return await self._routes.get(
            (caller.project, model, task),
            lambda: self.on_thread(lambda: routing.route(self._plane, caller, model, task=task, auto=auto)),
        )

    async def service(self, service_id: str, *, max_age: float = VIEW_SECONDS) -> ServiceView:
        """The service, read at most ``max_age`` seconds ago."""
        return await self._views.get(service_id, lambda: self.on_thread(self._view, service_id), max_age=max_age)

    async def report(self, counts: Mapping[str, Load]) -> None:
        await self.on_thread(lambda: loads.report(self._plane.db, self._gateway_id, counts))

    async def add_usage(self, counts: Mapping[UsageKey, UsageCounts]) -> None:
        await self.on_thread(lambda: usage.add(self._plane.db, counts))

    async def store_sample(self, project: str, filename: str, content: bytes) -> None:
        await self.on_thread(lambda: request_samples.store(self._plane, project, filename, content))

    async def on_thread(self, function: Callable[..., _Value], *arguments: object) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        self._threads.shutdown()

    def _view(self, service_id: str) -> ServiceView:
        with self._plane.db.snapshot() as session:
            row = session.get(Service, service_id)
            if row is None:
                return ServiceView(service_id, ServiceState.ENDED, ServiceLimits(), (), "")
            found = tuple(endpoints.of(session, service_id))
            why = "" if found else endpoints.why_none(session, service_id)
            document = ServiceDocument.from_json(row.spec)
            return ServiceView(row.name, row.status, document.limits, found, why, row.project, document.logged_share)

    def _caller(self, credentials: Credentials) -> Caller:
        caller = None
        try:
            caller = self._authenticated(credentials)
            if credentials.project:
                caller = projects.enter(self._plane.db, caller, credentials.project)
            caller.require(Permission.INFER)
        except _DENIED as error:
            self._note(error, caller, credentials)
            raise
        return caller

    def _holder(self, credentials: Credentials) -> Caller:
        try:
            return self._authenticated(credentials)
        except _DENIED as error:
            self._note(error, None, credentials)
            raise

    def _authenticated(self, credentials: Credentials) -> Caller:
        """Failed authentications are limited by address, as the API does."""
        if not credentials.key:
            raise CredentialsMissing("send an API key in the header Authorization: Bearer KEY")
        try:
            if credentials.key.startswith(job_tokens.PREFIX):
                return job_callers.authenticate(self._plane.db, self._secret_key, credentials.key)
            return api_keys.authenticate(self._plane.db, credentials.key)
        except CredentialsInvalid:
            limit = "too many failed authentications from this address; retry after retry_after seconds"
            self._wrong_keys.check(f"address:{holder_of(credentials.address)}", message=limit)
            raise

    def _note(self, error: TrainyardError, caller: Caller | None, credentials: Credentials) -> None:
        actor, project = (caller.actor, caller.project) if caller is not None else (ANONYMOUS, None)
        if isinstance(error, CredentialsInvalid) and error.key_id:
            actor, project = error.key_id, error.project
        denial = Denial(
            actor=actor,
            project=None if isinstance(error, NotYours) else project,
            target="gateway",
            message=error.message,
            data={"code": error.code, "foreign": True} if isinstance(error, NotYours) else {"code": error.code},
        )
        source = actor if actor != ANONYMOUS else holder_of(credentials.address)
        denied_requests.note(self._plane.db, self._denials, source, denial)
