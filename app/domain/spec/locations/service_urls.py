"""URLs of services that the platform calls for users: webhooks and tracking services."""

from urllib.parse import unquote, urlsplit

from app.domain.errors import BadSpec
from app.domain.spec.locations.hosts import authority_of, check_host, refuse_private_host
from app.domain.spec.locations.uris import leads_up


def check_service_url(url: str, allow: tuple[str, ...], *, what: str, instead: str, setting: str, field: str) -> None:
    """Refuse a malformed URL, and a private address that is not allowed.

    ``what`` says what the URL is, ``instead`` how the service knows us without credentials in it, ``setting`` names
    the one that ``allow`` comes from.
    """
    if not url.isascii():
        raise BadSpec("write the URL in ASCII: host names as punycode (xn--…), the rest percent-encoded", field=field)
    scheme, authority = url.partition("://")[0].lower(), authority_of(url)
    if scheme not in ("http", "https"):
        raise BadSpec(f"{what}; other schemes are not served", field=field)
    if "@" in authority or "#" in url:
        raise BadSpec(f"the URL must hold no user, password or fragment; {instead}", field=field)
    refuse_private_host(url, allow, field=field, setting=setting)
    check_host(url, field=field)
    try:
        path = urlsplit(url).path
    except ValueError as error:
        raise BadSpec("the URL is malformed; the form is https://host/path", field=field) from error
    if leads_up(unquote(path)):
        raise BadSpec("the URL leads up by ..; write it without", field=field)
