"""The submitting user's tokens for the services behind scaidrive:// and scaiatlas://, exchanged where necessary."""

import json
from collections.abc import Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from config.fetching import FetchSettings
from workers.fetching.failures import FetchRefused, NotThere, Trouble

HEADERS = {"scaidrive": "X-ScaiDrive-Token", "scaiatlas": "X-ScaiAtlas-Token"}
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 – a kind of token
EXCHANGE_SECONDS = 30.0
ANSWER_BYTES = 1 << 20


def share_url(scheme: str, settings: FetchSettings) -> str:
    """The base URL of the shares. Raises FetchRefused."""
    url: str = getattr(settings, f"{scheme}_url")
    if not url:
        name = f"TRAINYARD_FETCH_{scheme.upper()}_URL"
        raise FetchRefused(f"this node has no service for {scheme}://; have the administrator set {name}")
    return url.rstrip("/")


def token_for(scheme: str, settings: FetchSettings, secrets: Mapping[str, str]) -> str:
    """The token forwarded for this service, else the user's own, exchanged. Raises NotThere, Trouble."""
    own = secrets.get(f"forwarded.{scheme}")
    if own:
        return own
    user = secrets.get("forwarded.user")
    if not user:
        raise NotThere(f"the job was submitted without a token for {scheme}; {way_out(scheme)}")
    return _exchanged(scheme, settings, user) if settings.token_exchange_url else user


def way_out(scheme: str) -> str:
    return f"submit it again with a fresh token in the header {HEADERS[scheme]} or X-User-Token"


class _NoRedirects(HTTPRedirectHandler):
    """The token is only sent to the configured address."""

    def redirect_request(self, *_: object) -> None:
        return None


def _exchanged(scheme: str, settings: FetchSettings, user_token: str) -> str:
    """Exchange the token by RFC 8693."""
    form = {
        "grant_type": GRANT,
        "subject_token": user_token,
        "subject_token_type": ACCESS_TOKEN,
        "requested_token_type": ACCESS_TOKEN,
        "audience": scheme,
        "resource": share_url(scheme, settings),
    }
    if settings.token_exchange_client:
        form |= {"client_id": settings.token_exchange_client, "client_secret": settings.token_exchange_secret}
    request = Request(settings.token_exchange_url, data=urlencode(form).encode(), method="POST")  # noqa: S310 – http(s)
    try:
        with build_opener(ProxyHandler({}), _NoRedirects).open(request, timeout=EXCHANGE_SECONDS) as answer:
            token = json.loads(answer.read(ANSWER_BYTES)).get("access_token")
    except HTTPError as error:
        error.close()
        if error.code in (400, 401, 403):
            raise NotThere(
                f"the user's token was not exchanged for {scheme} ({error.code}); {way_out(scheme)}"
            ) from error
        raise Trouble(f"the token exchange answers {error.code}") from error
    except (URLError, OSError, ValueError, AttributeError) as error:
        raise Trouble(f"the token exchange failed: {type(error).__name__}") from error
    if not isinstance(token, str) or not token:
        raise Trouble("the token exchange answers without an access_token")
    return token
