"""Engines on databases of tests: each is new, but statements that an earlier one has compiled serve it as well."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache

from app.database.engine import make_engine

# By name of the dialect. SQLAlchemy finds compiled statements by the dialect's identity.
_compiled: dict[str, tuple[Dialect, LRUCache[Any, Any]]] = {}


def engine_on(url: str) -> Engine:
    """Like `make_engine`; a test spends a third of its time on compiling what all tests ask."""
    engine = make_engine(url)
    name = engine.dialect.name
    if name not in _compiled:
        engine.connect().close()  # which asks the server what the dialect has to know
        _compiled[name] = engine.dialect, LRUCache(2000)
    engine.dialect, statements = _compiled[name]
    engine.update_execution_options(compiled_cache=statements)
    return engine
