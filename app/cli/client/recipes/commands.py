"""`trainyard recipes list` and `show`; `submit` is imported when it is called."""

from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.recipes.recipe_name import RecipeName
from app.cli.lazy_group import LazyGroup
from app.cli.output import json_option, print_json, print_table
from app.services.recipes import FAMILIES, METHODS, SIZES_GB, Recipe
from app.services.recipes import recipes as all_recipes

_COLUMNS = ("name", "method", "model", "framework", "GPUs")


@click.group(
    cls=LazyGroup,
    table={
        "list": ("app.cli.client.recipes.commands:list_recipes", "List recipes."),
        "show": ("app.cli.client.recipes.commands:show", "Print a recipe: a job document with reasons."),
        "submit": ("app.cli.client.recipes.submit:submit", "Submit a recipe with your data."),
    },
)
def recipes() -> None:
    """List, show and submit job documents for well-known models."""


@click.command(name="list")
@click.option("--method", type=SuggestingChoice(METHODS, case_sensitive=False), help="Only this training method.")
@click.option("--family", type=SuggestingChoice(FAMILIES, case_sensitive=False), help="Only models of this family.")
@click.option(
    "--gpu-memory",
    type=click.IntRange(1),
    metavar="GB",
    help=f"Only those that GPUs of this memory hold: {', '.join(map(str, SIZES_GB))}.",
)
@click.option("--gpus", type=click.IntRange(1), help="Only those for at most this many GPUs.")
@json_option
def list_recipes(
    *, method: str | None, family: str | None, gpu_memory: int | None, gpus: int | None, as_json: bool
) -> None:
    """List recipes."""
    found = [
        each
        for each in all_recipes()
        if (not method or each.method == method)
        and (not family or each.family == family)
        and (not gpu_memory or each.gpu_memory_gb <= gpu_memory)
        and (not gpus or each.gpu_count <= gpus)
    ]
    if as_json:
        print_json([_facts(each) for each in found])
        return
    rows = [(each.name, each.method, each.model, each.framework, each.hardware) for each in found]
    print_table(_COLUMNS, rows, empty="no recipe is like this; trainyard recipes list shows all")


@click.command()
@click.argument("name", type=RecipeName())
@json_option
def show(name: Recipe, as_json: bool) -> None:  # noqa: FBT001
    """Print the recipe NAME: a job document in YAML, with the reasons for its values."""
    print_json({**_facts(name), "document": name.document}) if as_json else click.echo(name.text, nl=False)


def _facts(each: Recipe) -> dict[str, Any]:
    return {
        "name": each.name,
        "summary": each.summary,
        "family": each.family,
        "model": each.model,
        "method": each.method,
        "framework": each.framework,
        "gpu_count": each.gpu_count,
        "gpu_memory_gb": each.gpu_memory_gb,
        "data": each.data,
        "notes": each.notes,
        "sources": each.sources,
    }
