"""The request context: the control plane behind the app, the settings, and the caller."""

from dataclasses import dataclass, field
from typing import cast

from flask import Flask, current_app, g, request

from app.http.dialect import NATIVE, Dialect
from app.http.polls import RecentPolls
from app.http.slots import Slots, StreamPace
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.security.rate_limits import RateLimits
from app.services.access.denied_requests import DenialThrottle
from app.services.operations.change_marks import ChangeMarks
from app.services.requests.control_plane import ControlPlane
from app.services.requests.short_cache import ShortCache
from config.settings import Settings

EXTENSION = "trainyard"
_DIALECT = "trainyard.dialect"  # of the request, in its environment


@dataclass(frozen=True, kw_only=True)
class Backend:
    plane: ControlPlane
    settings: Settings
    streams: Slots
    answers: Slots
    bodies: Slots
    viewers: Slots
    previews: Slots
    openings: Slots
    limits: RateLimits
    dialects: tuple[Dialect, ...] = (NATIVE,)
    key_cache: KeyCache = field(default_factory=KeyCache)
    denials: DenialThrottle = field(default_factory=DenialThrottle)
    pace: StreamPace = field(default_factory=StreamPace)
    shared: ShortCache = field(default_factory=ShortCache)
    marks: ChangeMarks = field(default_factory=ChangeMarks)
    polls: RecentPolls = field(default_factory=RecentPolls)  # of tabs without a stream


def backend() -> Backend:
    return cast("Backend", current_app.extensions[EXTENSION])


def plane() -> ControlPlane:
    return backend().plane


def caller() -> Caller:
    """The authenticated caller, set before every resource method that requires a permission."""
    return cast("Caller", g.caller)


def holder() -> str:
    """Whose slots the request takes: of the caller's project, or of a key for all projects."""
    return caller().project or caller().key_id


def dialect() -> Dialect:
    """The dialect of the request's path, even if the path has no route."""
    found = request.environ.get(_DIALECT)
    if found is None:
        found = request.environ[_DIALECT] = dialect_of(current_app, request.path)
    return cast("Dialect", found)


def dialect_of(app: Flask, path: str) -> Dialect:
    """The dialect with the longest matching base path; the native one if none matches."""
    dialects: tuple[Dialect, ...] = app.extensions[EXTENSION].dialects
    return max(dialects, key=lambda each: len(each.base_of(path)))


def base_path() -> str:
    """The base path of this request, for links in its response."""
    return dialect().link_base(request.path)
