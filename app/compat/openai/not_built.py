"""Resources of OpenAI's API that this version does not have. Every role gets the same 501."""

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
        "this version does not have this resource; models answer POST requests to chat/completions, completions, "
        "embeddings and rerank below /openai/v1"
    )


for _method, _path in NOT_BUILT:
    blueprint.add_url_rule(
        _path,
        endpoint=f"{_method}{_path}".lower().translate(str.maketrans("/<>:", "____")),
        view_func=operation("Not built yet", permission=Permission.LIST_MODELS, query=AnyQuerySchema, status=501)(
            _refuse
        ),
        methods=[_method],
    )
