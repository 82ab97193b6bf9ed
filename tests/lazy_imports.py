"""Libraries that take seconds to import: every process of a run reads all test files, and few run the tests of one."""

import importlib.util
import sys
from types import ModuleType
from typing import Any

# What pytest asks of everything in a test file, to find tests and fixtures, and hypothesis and imports of all modules.
_ASKED_OF_ALL = frozenset(
    {"__bases__", "__class__", "__file__", "__func__", "__spec__", "__test__", "__wrapped__", "_mock_name"}
)


def lazily_imported(name: str) -> ModuleType:
    """The package ``name``, which is imported when something of it is used."""
    if name in sys.modules:  # `find_spec` would import what another file was given lazily
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    object.__setattr__(module, "__class__", _Unused)
    return module


class _Unused(importlib.util._LazyModule):  # type: ignore[name-defined, misc]
    def __getattribute__(self, name: str) -> Any:
        if name in _ASKED_OF_ALL:
            return ModuleType.__getattribute__(self, name)
        return super().__getattribute__(name)
