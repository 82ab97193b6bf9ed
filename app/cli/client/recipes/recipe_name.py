"""The name of a recipe as an argument of a command."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from app.domain.suggestions import did_you_mean
from app.services.recipes import Recipe, recipe, recipe_names


class RecipeName(click.ParamType[Recipe]):
    """The name of a recipe; completed without reading one."""

    name = "recipe"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 – click's
        if isinstance(value, Recipe):
            return value
        found = recipe(str(value))
        if found is None:
            close = did_you_mean(str(value), recipe_names())
            self.fail(f"there is no recipe {value!r:.100}{close}; trainyard recipes list shows all", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        return [CompletionItem(name) for name in recipe_names() if name.startswith(incomplete)]
