"""These tests run the whole system."""

from tests.installations import make_system, shared_system

__all__ = ["make_system", "shared_system"]
