"""The cache's size on a CPU is a function of model and document, so that every node makes the same batches."""

from pathlib import Path

import pytest

from workers.trainers.inference.engine.cache_size import cache_size

GIBIBYTE = 1 << 30


def read_of_a_control_group(*_: object, **__: object) -> str:
    return str(64 << 20)


def test_it_follows_the_limit_in_the_document_and_no_other(engine, monkeypatch):
    expected = cache_size(engine.model).tokens
    monkeypatch.setattr(Path, "read_text", read_of_a_control_group)

    assert cache_size(engine.model).tokens == expected
    assert cache_size(engine.model, ram_mb=1 << 20).tokens == expected
    assert cache_size(engine.model, ram_mb=1024).tokens == pytest.approx(expected / 4, abs=1)
