"""Imports SQLAlchemy without what it needs for its asyncio side alone: 3.5 MB of each supervisor, never used there.

asyncio brings ssl, concurrent.futures and more; importlib.metadata brings email and zipfile. SQLAlchemy gets stand-ins,
which become the real modules on first use; other importers get the real ones. In a process that
has SQLAlchemy or asyncio already this does nothing.
"""

import gc
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_ONLY_FOR_ASYNCIO = ("asyncio", "importlib.metadata")
# All of SQLAlchemy that imports them: what of it is imported later finds the real ones.
_SQLALCHEMY = ("sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite")


class Later(ModuleType):
    """Stands in for a module until a missing attribute is accessed."""

    # Accessed while SQLAlchemy is imported.
    iscoroutine = staticmethod(inspect.iscoroutine)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)  # code that iterates over all modules must not load them
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _stand_ins() -> Iterator[None]:
    for name in _ONLY_FOR_ASYNCIO:
        sys.modules[name] = Later(name)
    importlib.metadata = sys.modules["importlib.metadata"]
    try:
        yield
    finally:
        del importlib.metadata
        for name in _ONLY_FOR_ASYNCIO:
            del sys.modules[name]


if not {"sqlalchemy", *_ONLY_FOR_ASYNCIO} & set(sys.modules):
    gc.disable()  # until main: it would find next to nothing, in a tenth of the time of the start
    with _stand_ins():
        for _name in _SQLALCHEMY:
            importlib.import_module(_name)
