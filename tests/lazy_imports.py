"""Libraries that take seconds to import: every process of a run reads all test files, and few run the tests of one."""

import importlib.util
import sys
from types import ModuleType


def lazily_imported(name: str) -> ModuleType:
    """The package ``name``, which is imported when something of it is used."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    if name in sys.modules:
        return sys.modules[name]
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
