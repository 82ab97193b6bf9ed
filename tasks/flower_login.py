"""Slows down guesses of Flower's password, which a person may have chosen, and keeps its pages out of frames."""

from flower.views import BaseHandler
from tornado.web import HTTPError

from app.services.access.password_guesses import Guesses

_HEADERS = {"X-Frame-Options": "DENY", "Content-Security-Policy": "frame-ancestors 'none'"}


def limit_guesses() -> None:
    """Change Flower's handlers, which all check their user and set their headers by two methods of their base class."""
    guesses = Guesses()
    current_user, default_headers = BaseHandler.get_current_user, BaseHandler.set_default_headers

    def get_current_user(self: BaseHandler) -> object:
        if "Authorization" not in self.request.headers:
            return current_user(self)
        address = self.request.remote_ip or ""
        if wait := guesses.seconds_left(address):
            self.set_header("Retry-After", str(wait))
            raise HTTPError(429, reason="Too many wrong passwords")
        try:
            return current_user(self)
        except HTTPError:
            guesses.note_wrong(address)
            raise

    def set_default_headers(self: BaseHandler) -> None:
        default_headers(self)
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    BaseHandler.get_current_user = get_current_user
    BaseHandler.set_default_headers = set_default_headers
