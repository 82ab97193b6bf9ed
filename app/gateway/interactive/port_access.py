"""Who may open which port: asks the services, and remembers for a second."""

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass

from app.domain.errors import CredentialsInvalid, CredentialsMissing
from app.domain.port_addresses import PortAddress
from app.gateway.backend import Credentials, GatewayBackend
from app.gateway.interactive.port_request import PortRequest
from app.security import application_tokens
from app.services.access import api_keys
from app.services.interactive import ports
from app.services.interactive.ports import OpenPort
from app.services.requests.control_plane import ControlPlane

REMEMBER_SECONDS = 0.5  # after which a revoked key, or an attempt that has ended, is noticed
RECORD_SECONDS = 3600.0  # for which one line of the audit trail says that a key uses a port
MOST_REMEMBERED = 10_000
KEY_START = "ty_"  # of API keys


@dataclass(frozen=True)
class Credential:
    """A token of the port, an API key, or (also ``is_key``) a token that stands for one."""

    value: str
    is_key: bool = False
    in_url: bool = False


@dataclass(frozen=True, kw_only=True)
class PortGrant:
    """What was granted, and by what."""

    opened: OpenPort
    credential: Credential


class PortAccess:
    """For one event loop."""

    def __init__(self, backend: GatewayBackend, plane: ControlPlane, secret_key: str) -> None:
        self._backend = backend
        self._plane = plane
        self._secret_key = secret_key
        self._known: OrderedDict[bytes, tuple[float, OpenPort]] = OrderedDict()
        self._recorded: OrderedDict[tuple[str, str, str, int], float] = OrderedDict()

    async def of(self, request: PortRequest, client: str) -> PortGrant:
        """By the first credential that is valid.

        Raises Unauthenticated where none is, NotFound, Forbidden, Conflict, LimitExceeded.
        """
        key = request.key if self.is_of_the_platform(request.key) else ""
        for credential in _credentials(request, key):
            try:
                opened = await self.again(request.address, credential, client)
            except CredentialsInvalid:
                continue
            if opened.endpoint is not None:
                await self._record(opened, client)
            return PortGrant(opened=opened, credential=credential)
        raise CredentialsMissing("a token of this port, or an API key, is needed")

    async def again(self, address: PortAddress, credential: Credential, client: str) -> OpenPort:
        """Whether the credential still opens the port; no use of it, so that nothing is recorded. Raises as `of`."""
        asked = f"{credential.is_key}\n{address.job_id}\n{address.name}\n{credential.value}"
        name = hashlib.sha256(asked.encode()).digest()
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] <= REMEMBER_SECONDS:
            return known[1]
        self._known.pop(name, None)
        opened = await self._asked(address, credential, client)
        self._known[name] = (time.monotonic(), opened)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return opened

    async def _record(self, opened: OpenPort, client: str) -> None:
        """Once for each key, port and attempt in an hour, however it came by the address. No use without its line."""
        use = opened.key_id, opened.job_id, opened.port.name, opened.attempt
        now, before = time.monotonic(), self._recorded.get(use)
        if before is not None and now - before < RECORD_SECONDS:
            return
        self._recorded[use] = now
        self._recorded.move_to_end(use)
        if len(self._recorded) > MOST_REMEMBERED:
            self._recorded.popitem(last=False)
        try:
            await self._backend.on_thread(lambda: ports.record_use(self._plane, opened, client))
        except BaseException:
            self._recorded.pop(use, None)
            raise

    async def _asked(self, address: PortAddress, credential: Credential, client: str) -> OpenPort:
        job_id, name, value = address.job_id, address.name, credential.value
        if not credential.is_key:
            return await self._backend.on_thread(
                lambda: ports.by_token(self._plane, self._secret_key, value, job_id, name)
            )
        if not value.startswith(KEY_START):
            key_id = application_tokens.key_of(self._secret_key, value)
            return await self._backend.on_thread(
                lambda: ports.by_caller(self._plane, api_keys.of_id(self._plane.db, key_id), job_id, name)
            )
        caller = await self._backend.holder(Credentials(key=value, project="", address=client))
        return await self._backend.on_thread(lambda: ports.by_caller(self._plane, caller, job_id, name))

    def is_of_the_platform(self, key: str) -> bool:
        """Whether it is an API key or a valid token that stands for one; others in that header are the job's own."""
        if key.startswith(KEY_START) or not application_tokens.has_form(key):
            return key.startswith(KEY_START)
        try:
            application_tokens.key_of(self._secret_key, key)
        except CredentialsInvalid:
            return False
        return True


def _credentials(request: PortRequest, key: str) -> list[Credential]:
    found = [Credential(token, in_url=True) for token in request.url_tokens]
    if key:
        found.append(Credential(key, is_key=True))
    return found + [Credential(token) for token in request.cookie_tokens]
