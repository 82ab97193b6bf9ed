"""Imports without garbage collections: the collector is as it was afterwards, also after an error."""

import gc

import pytest

from app.host.imports import uncollected_imports


@pytest.mark.parametrize("is_on", [True, False])
def test_collector_is_off_within_and_as_before_afterwards(*, is_on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ImportError, match="False"), uncollected_imports():
            raise ImportError(gc.isenabled())
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


@pytest.mark.long
def test_few_modules_stay_collectable() -> None:
    before = gc.get_freeze_count()

    with uncollected_imports():
        pass

    # Frozen objects that nothing refers to any more may go meanwhile.
    assert gc.get_freeze_count() <= before
