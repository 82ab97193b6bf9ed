"""The identity provider that people sign in with: authorization code flow with PKCE (RFC 6749, RFC 7636)."""

import base64
import hashlib
import json
import math
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from app.domain.errors import CredentialsInvalid, Unavailable
from app.security.id_tokens import claims_of
from app.services.access.guarded_http import FAILURES, OutgoingRequest, exchange, problem_of
from config.oidc import OidcSettings

_MOST_BYTES = 1 << 20
_KNOWN_SECONDS = 300.0
_FAILED_SECONDS = 5.0
_WAIT_SECONDS = 1.0
_MOST_WAITING, _MOST_AT_ONCE = 4, 8
_DISCOVERY = "/.well-known/openid-configuration"
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class StartedSignIn:
    """A sign-in that continues at the provider; the browser keeps the secrets of it, sealed."""

    url: str
    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True, kw_only=True)
class ProviderIdentity:
    """A person, as the provider says; ``claims`` are those of the ID token and of the user information.

    ``is_unverified``: the e-mail address decides the role, and the provider does not say that it is the person's.
    """

    issuer: str
    subject: str
    name: str
    email: str
    claims: Mapping[str, Any]
    is_unverified: bool = False


class IdentityProvider:
    """One provider. Its description is kept for five minutes, its keys are read at every sign-in.

    Sign-ins begin without a key, so a provider that does not answer holds a few threads only: one asks for the
    description, a few wait a second for it, a failure counts for some seconds, and a few sign-ins are finished at once.
    """

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._issuer = settings.issuer
        self._described: tuple[float, dict[str, Any]] = (-math.inf, {})
        self._failed: tuple[float, str] = (-math.inf, "")
        self._asks, self._waiting = threading.Semaphore(1), threading.Semaphore(_MOST_WAITING)
        self._finishing = threading.Semaphore(_MOST_AT_ONCE)

    def start(self, redirect_uri: str) -> StartedSignIn:
        """Raises Unavailable while the provider cannot be reached."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self._endpoint("authorization_endpoint", self._deadline())
        joint = "&" if urlsplit(address).query else "?"
        return StartedSignIn(url=f"{address}{joint}{urlencode(query)}", state=state, nonce=nonce, verifier=verifier)

    def finish(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> ProviderIdentity:
        """Who has signed in. Raises CredentialsInvalid for a code that does not count, Unavailable."""
        with self._slot(self._finishing):
            return self._finished(code, redirect_uri, nonce, verifier)

    def sign_out_url(self, back_to: str) -> str:
        """Where a browser ends its sign-in at the provider (RP-initiated logout), which then leads ``back_to``.

        Empty where the provider has no such page, or cannot be asked. No ID token is kept, so it may ask the person.
        """
        try:
            address = self._description(self._deadline()).get("end_session_endpoint")
        except Unavailable:
            return ""
        if not isinstance(address, str) or not is_http(address):
            return ""
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": back_to}
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"

    def _finished(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> ProviderIdentity:
        deadline = self._deadline()
        granted = self._redeem(code, redirect_uri, verifier, deadline)
        keys = self._asked(
            OutgoingRequest(method="GET", url=self._endpoint("jwks_uri", deadline), headers={}), deadline
        )
        claims = claims_of(
            str(granted.get("id_token", "")), keys, issuer=self._issuer, client_id=self._settings.client_id, nonce=nonce
        )
        source = claims
        if self._settings.claim not in claims and "userinfo_endpoint" in self._description(deadline):
            source = self._user_information(str(granted.get("access_token", "")), claims["sub"], deadline)
            claims = {**source, **claims}
        return ProviderIdentity(
            issuer=self._issuer,
            subject=str(claims["sub"]),
            name=str(claims.get("name") or claims.get("preferred_username") or claims.get("email") or claims["sub"]),
            email=str(claims.get("email") or ""),
            claims=claims,
            is_unverified=self._settings.claim == "email"
            and "email" in source
            and source.get("email_verified") is not True,
        )

    def _redeem(self, code: str, redirect_uri: str, verifier: str, deadline: float) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": self._settings.client_id,
        }
        # RFC 6749, section 2.3.1: encoded before they are joined. A space as %20, which every provider decodes.
        pair = ":".join(quote(each, safe="") for each in (self._settings.client_id, self._settings.client_secret))
        headers = {"Content-Type": _FORM, "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        address = self._endpoint("token_endpoint", deadline)
        request = OutgoingRequest(method="POST", url=address, headers=headers, body=urlencode(form).encode())
        return self._asked(request, deadline)

    def _user_information(self, access_token: str, subject: str, deadline: float) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {access_token}"}
        address = self._endpoint("userinfo_endpoint", deadline)
        found = self._asked(OutgoingRequest(method="GET", url=address, headers=headers), deadline)
        if found.get("sub") != subject:
            raise CredentialsInvalid("the provider's user information is of another person")
        return found

    def _endpoint(self, name: str, deadline: float) -> str:
        address = self._description(deadline).get(name)
        if not isinstance(address, str) or not is_http(address):
            raise Unavailable(f"the identity provider {self._issuer} describes no {name}")
        return address

    def _description(self, deadline: float) -> dict[str, Any]:
        if (known := self._known()) is not None:
            return known
        with self._slot(self._waiting), self._slot(self._asks, _WAIT_SECONDS):
            if (known := self._known()) is not None:
                return known
            try:
                found = self._described_anew(deadline)
            except (CredentialsInvalid, Unavailable) as error:
                self._failed = (time.monotonic(), error.message)
                raise Unavailable(error.message) from error
            self._described = (time.monotonic(), found)
            return found

    def _known(self) -> dict[str, Any] | None:
        """The description, while it is new. Raises Unavailable for a moment after asking for it has failed."""
        (read_at, known), (failed_at, why) = self._described, self._failed
        if time.monotonic() - read_at < _KNOWN_SECONDS:
            return known
        if time.monotonic() - failed_at < _FAILED_SECONDS:
            raise Unavailable(why)
        return None

    def _described_anew(self, deadline: float) -> dict[str, Any]:
        address = self._issuer.rstrip("/") + _DISCOVERY
        found = self._asked(OutgoingRequest(method="GET", url=address, headers={}), deadline)
        if found.get("issuer") != self._issuer:
            raise Unavailable(
                f"the identity provider names itself {found.get('issuer')!r}; set TRAINYARD_OIDC_ISSUER to that"
            )
        return found

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout_seconds

    @contextmanager
    def _slot(self, slots: threading.Semaphore, seconds: float = 0.0) -> Iterator[None]:
        """Raises Unavailable when none of the slots gets free in time."""
        if not slots.acquire(timeout=seconds):
            raise self._unreachable("it has not answered those who signed in just before; try again in a moment")
        try:
            yield
        finally:
            slots.release()

    def _asked(self, request: OutgoingRequest, deadline: float) -> dict[str, Any]:
        """The JSON object that it answers with. Raises CredentialsInvalid when it refuses, Unavailable."""
        host = urlsplit(request.url).hostname or ""
        try:
            # The operator names the provider, which may be within the private network.
            with exchange(request, (host,), deadline) as (response, _):
                status, body = response.status, response.read(_MOST_BYTES, decode_content=True)
            found = json.loads(body)
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {self._settings.timeout_seconds:g} seconds") from error
        except FAILURES as error:
            raise self._unreachable(problem_of(error, setting="TRAINYARD_OIDC_ISSUER")) from error
        if status in (400, 401, 403) and isinstance(found, dict):
            raise CredentialsInvalid(f"the identity provider refuses the sign-in: {found.get('error', status)}")
        if status != 200 or not isinstance(found, dict):
            raise self._unreachable(f"it answers {status}")
        return found

    def _unreachable(self, why: str) -> Unavailable:
        return Unavailable(f"the identity provider {self._issuer} cannot be asked: {why}; sign in with a key meanwhile")


def is_http(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return False


@cache
def provider(settings: OidcSettings) -> IdentityProvider:
    """The provider of these settings, one for a process."""
    return IdentityProvider(settings)
