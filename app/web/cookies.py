"""The cookies of the dashboard: the session, and a notice that the next page shows once."""

from flask import Response, request

_NAME, _NOTICE = "trainyard-session", "trainyard-notice"
_NOTICE_SECONDS = 60
_MOST_NOTICE_BYTES = 2000
_SIGN_IN, SIGN_IN_SECONDS = "trainyard-sign-in", 600


def session_name() -> str:
    """With TLS a name that browsers accept from this host alone (RFC 6265bis, cookie name prefixes)."""
    return f"__Host-{_NAME}" if request.is_secure else _NAME


def session() -> str:
    """The secret of the session; empty if there is none."""
    return request.cookies.get(session_name(), "")


def set_session(response: Response, secret: str, *, seconds: float) -> None:
    # `__Host-` demands the path /; the dialect reads the cookie below /ui only.
    response.set_cookie(
        session_name(),
        secret,
        max_age=int(seconds),
        path="/",
        secure=request.is_secure,
        httponly=True,
        samesite="Strict",
    )


def drop_session(response: Response) -> None:
    response.delete_cookie(session_name(), path="/", secure=request.is_secure, httponly=True, samesite="Strict")


def set_notice(response: Response, text: str) -> None:
    response.set_cookie(
        _NOTICE,
        _shortened(text),
        max_age=_NOTICE_SECONDS,
        path="/ui",
        secure=request.is_secure,
        httponly=True,
        samesite="Strict",
    )


def notice() -> str:
    """What the action before this page did; empty if there was none."""
    return request.cookies.get(_NOTICE, "")


def drop_notice(response: Response) -> None:
    response.delete_cookie(_NOTICE, path="/ui", secure=request.is_secure, httponly=True, samesite="Strict")


def set_sign_in(response: Response, sealed: str) -> None:
    """Remembers a sign-in that continues at an identity provider, whose page leads back: a cookie that is Strict would
    not be sent then. The last that a browser began counts.
    """
    name, path = _sign_in_place()
    response.set_cookie(
        name, sealed, max_age=SIGN_IN_SECONDS, path=path, secure=request.is_secure, httponly=True, samesite="Lax"
    )


def sign_in() -> str:
    return request.cookies.get(_sign_in_place()[0], "")


def drop_sign_in(response: Response) -> None:
    name, path = _sign_in_place()
    response.delete_cookie(name, path=path, secure=request.is_secure, httponly=True, samesite="Lax")


def _sign_in_place() -> tuple[str, str]:
    """Name and path. With TLS no other host of the domain can set it, to have its own sign-in finished here."""
    return (f"__Host-{_SIGN_IN}", "/") if request.is_secure else (_SIGN_IN, "/ui/login")


def _shortened(text: str) -> str:
    """As much of the text as a cookie holds: what is not plain takes four bytes for each of its own."""
    room, kept = _MOST_NOTICE_BYTES, ""
    for character in text:
        encoded = character.encode(errors="replace")
        room -= 1 if character.isascii() and (character.isalnum() or character in " .-_:/") else 4 * len(encoded)
        if room < 0:
            break
        kept += encoded.decode()
    return kept
