"""The rules by which paths are matched."""

from collections.abc import Callable
from typing import NoReturn

from werkzeug.routing import Rule


class MatchingRule(Rule):
    """One by which no address is built, as nothing here does with `url_for`.

    Werkzeug compiles two functions for that for each rule, which took most of the time that the application needs to
    start. Should a new version do so elsewhere, starting takes longer again, and nothing else changes.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:  # noqa: ARG002, FBT001, FBT002  as in Werkzeug
        return _refuse_to_build


def _refuse_to_build(rule: Rule, **_values: object) -> NoReturn:
    raise RuntimeError(f"no address is built of {rule.rule}: write it down instead")
