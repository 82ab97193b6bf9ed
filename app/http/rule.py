"""The URL rule class of the application."""

from collections.abc import Callable
from typing import NoReturn

from werkzeug.routing import Rule


class MatchingRule(Rule):
    """A rule without URL building: the application never uses `url_for`.

    Werkzeug compiles two builder functions per rule, which dominated the application's start time. If a new version
    compiles them elsewhere, only the start becomes slower again.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:  # noqa: ARG002, FBT001, FBT002  as in Werkzeug
        return _refuse_to_build


def _refuse_to_build(rule: Rule, **_values: object) -> NoReturn:
    raise RuntimeError(f"url_for is not supported for {rule.rule}: write the URL out")
