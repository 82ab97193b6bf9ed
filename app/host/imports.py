"""Imports without garbage collections, which find next to nothing then and scan all objects each time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 50  # modules; what fewer of them make is collected soon enough


@contextmanager
def uncollected_imports(*, freeze: bool = True) -> Iterator[None]:
    """Within it modules are imported; what they made is left out of later collections, too, because it stays.

    ``freeze`` must be false where other threads work: what they hold at that moment would never be collected.
    """
    was_enabled, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if freeze and len(sys.modules) - before >= _MANY:
            gc.freeze()
        if was_enabled:
            gc.enable()
