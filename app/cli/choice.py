"""An option that takes one of several words, whose error says which one was probably meant."""

from typing import Any

import click

from app.domain.suggestions import did_you_mean


class SuggestingChoice(click.Choice[str]):
    """As click's, with the suggestion that unknown names get elsewhere."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ANN401 – click's signature
        said = super().get_invalid_choice_message(value, ctx)
        meant = did_you_mean(str(value), self.choices)
        return f"{said.removesuffix('.')}{meant}." if meant else said
