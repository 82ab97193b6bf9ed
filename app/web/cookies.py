"""The cookies of the dashboard: the session, and a notice that the next page shows once."""

from flask import Response, request

_NAME, _NOTICE = "trainyard-session", "trainyard-notice"
_NOTICE_SECONDS = 60
_SIGN_IN, SIGN_IN_SECONDS = "trainyard-sign-in", 600


def session_name() -> str:
    """With TLS a name that browsers accept from this host alone (RFC 6265bis, cookie name prefixes)."""
    return f"__Host-{_NAME}" if request.is_secure else _NAME


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
    response.set_cookie(_NOTICE, text[:1000], max_age=_NOTICE_SECONDS, path="/ui", httponly=True, samesite="Strict")


def notice() -> str:
    """What the action before this page did; empty if there was none."""
    return request.cookies.get(_NOTICE, "")


def drop_notice(response: Response) -> None:
    response.delete_cookie(_NOTICE, path="/ui", httponly=True, samesite="Strict")


def set_sign_in(response: Response, sealed: str) -> None:
    """Remembers a sign-in that continues at an identity provider, whose page leads back: a cookie that is Strict would
    not be sent then.
    """
    response.set_cookie(
        _SIGN_IN,
        sealed,
        max_age=SIGN_IN_SECONDS,
        path="/ui/login",
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )


def sign_in() -> str:
    return request.cookies.get(_SIGN_IN, "")


def drop_sign_in(response: Response) -> None:
    response.delete_cookie(_SIGN_IN, path="/ui/login", secure=request.is_secure, httponly=True, samesite="Lax")
