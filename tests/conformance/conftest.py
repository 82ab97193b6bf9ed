"""What the conformance tests share is what the trainer tests do."""

from tests.trainers.conftest import _forked_ranks, assets

__all__ = ["_forked_ranks", "assets"]
