"""`trainyard recipes submit`: a recipe with data of the caller as a job."""

import copy
from typing import Any

import click

from app.cli.client.documents.assignments import Assignment, set_option
from app.cli.client.recipes.recipe_name import RecipeName
from app.cli.client.submit import completed, show_dry_run, submit_document, submitting
from app.cli.connection import server
from app.services.recipes import Recipe


@click.command()
@click.argument("name", type=RecipeName())
@click.option("--data", required=True, multiple=True, metavar="PATH", help="Your training data; repeatable.")
@click.option("--validation", multiple=True, metavar="PATH", help="Data to evaluate on, instead of a share of --data.")
@click.option("--job-name", help="The job's name.  [default: the recipe's]")
@set_option
@submitting
def submit(
    *,
    name: Recipe,
    data: tuple[str, ...],
    validation: tuple[str, ...],
    job_name: str | None,
    assignments: tuple[Assignment, ...],
    as_json: bool,
    **how: Any,
) -> None:
    """Submit the recipe NAME with your data, and with what --set changes."""
    document = filled_in(name, data, validation)
    if job_name:
        document["name"] = job_name
    document = completed(document, assignments)
    with server(how["project"]) as client:
        if how["dry_run"]:
            show_dry_run(client, document, as_json=as_json)
        else:
            submit_document(client, document, watches=how["watches"], as_json=as_json)


def filled_in(found: Recipe, data: tuple[str, ...], validation: tuple[str, ...] = ()) -> dict[str, Any]:
    """The recipe's document with these sources."""
    document = copy.deepcopy(found.document)
    section = document["data_config"]
    section["sources"] = [
        *({"path": path} for path in data),
        *({"path": path, "split": "validation"} for path in validation),
    ]
    if validation:
        section.pop("validation_split", None)
    return document
