"""Resources of OpenAI's API that this version does not have, with the way to what they would do."""

from typing import NoReturn

from flask import Blueprint

from app.http.errors import NotBuiltYet
from app.http.operation import operation
from app.schemas.queries import AnyQuerySchema
from app.security.permissions import Permission

blueprint = Blueprint("openai_not_built", __name__)
# Method and path.
NOT_BUILT = (
    ("GET", "/chat/completions"),
    ("POST", "/moderations"),
    ("POST", "/responses"),
    ("GET", "/responses/<path:path>"),
    *((method, "/assistants") for method in ("GET", "POST")),
    *((method, "/assistants/<path:path>") for method in ("GET", "POST", "DELETE")),
    ("POST", "/threads"),
    *((method, "/threads/<path:path>") for method in ("GET", "POST", "DELETE")),
    ("POST", "/images/<path:path>"),
    ("POST", "/audio/<path:path>"),
)


def _refuse(**_path: str) -> NoReturn:
    raise NotBuiltYet(
        "this resource is not built in this version; an inference job, POST /v1/inference, runs a model over records"
    )


for _method, _path in NOT_BUILT:
    _permission = Permission.VIEW if _method == "GET" else Permission.MANAGE
    blueprint.add_url_rule(
        _path,
        endpoint=f"{_method}{_path}".lower().translate(str.maketrans("/<>:", "____")),
        view_func=operation("Not built yet", permission=_permission, query=AnyQuerySchema, status=501)(_refuse),
        methods=[_method],
    )
