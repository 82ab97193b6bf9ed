"""What a request finds: the control plane behind the app, the settings, and who is calling."""

from dataclasses import dataclass, field
from typing import cast

from flask import Flask, current_app, g, request

from app.http.dialect import NATIVE, Dialect
from app.http.stream_slots import StreamPace, StreamSlots
from app.security.known_keys import KnownKeys
from app.security.permissions import Caller
from app.security.rate_limits import RateLimits
from app.services.access.denied_requests import Floodgate
from app.services.requests.control_plane import ControlPlane
from config.settings import Settings

EXTENSION = "trainyard"


@dataclass(frozen=True, kw_only=True)
class Backend:
    plane: ControlPlane
    settings: Settings
    streams: StreamSlots
    limits: RateLimits
    dialects: tuple[Dialect, ...] = (NATIVE,)
    known_keys: KnownKeys = field(default_factory=KnownKeys)
    denials: Floodgate = field(default_factory=Floodgate)
    pace: StreamPace = field(default_factory=StreamPace)


def backend() -> Backend:
    return cast("Backend", current_app.extensions[EXTENSION])


def plane() -> ControlPlane:
    return backend().plane


def caller() -> Caller:
    """Set by authentication before any resource method that is not open to everybody."""
    return cast("Caller", g.caller)


def dialect() -> Dialect:
    """That of the request's path, also where nothing is served there."""
    return dialect_of(current_app, request.path)


def dialect_of(app: Flask, path: str) -> Dialect:
    """The one that has the longest base of the path; what belongs to none is the native one's."""
    dialects: tuple[Dialect, ...] = app.extensions[EXTENSION].dialects
    return max(dialects, key=lambda each: len(each.base_of(path)))


def base_path() -> str:
    """The base under which this request came, so that what it is told to follow has the same."""
    return dialect().base_of(request.path)
