"""Endpoints reserved for a later version: they return 501, so that clients can tell them from a mistyped URL."""

from typing import NoReturn

from flask import Blueprint

from app.http.errors import NotBuiltYet
from app.http.operation import operation
from app.schemas.queries import AnyQuerySchema
from app.security.permissions import Permission

blueprint = Blueprint("not_built", __name__)

# Method, path, and required permission.
NOT_BUILT: tuple[tuple[str, str, Permission], ...] = (
    ("GET", "/projects/<name>/<path:path>", Permission.VIEW),
    ("POST", "/projects/<name>/<path:path>", Permission.CLUSTER_ADMIN),
    ("PUT", "/projects/<name>/<path:path>", Permission.CLUSTER_ADMIN),
    ("PATCH", "/projects/<name>/<path:path>", Permission.CLUSTER_ADMIN),
    ("DELETE", "/projects/<name>/<path:path>", Permission.CLUSTER_ADMIN),
    ("GET", "/data/cache", Permission.MANAGE),
)


def _refuse(**_path: str) -> NoReturn:
    raise NotBuiltYet(
        "this endpoint is documented but not implemented in this version; see the CHANGELOG of later versions"
    )


for _method, _path, _permission in NOT_BUILT:
    _name = f"{_method.lower()}_{_path.strip('/').translate(str.maketrans('/-<>:', '_____'))}"
    blueprint.add_url_rule(
        _path,
        endpoint=_name,
        view_func=operation("Not implemented yet", permission=_permission, query=AnyQuerySchema, status=501)(_refuse),
        methods=[_method],
    )
