"""`trainyard sweep importance`: how much each parameter matters, as bars in the terminal or as a picture."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from app.cli.connection import server
from app.cli.output import json_option, print_json, printable
from app.cli.row_handles import sweep_argument

LONGEST_BAR = 40
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


@click.command()
@sweep_argument
@click.option("--objective", default="", help="Metric of one of several objectives; default the way to their front.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the figure to this file, as SVG.",
)
@json_option
def importance(sweep_id: str, objective: str, picture: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Show how much each parameter of SWEEP_ID matters, by PED-ANOVA; it needs 10 completed trials."""
    with server() as client:
        found = client.sweeps.figures.numbers(sweep_id, "importance", objective=objective)
        drawn = client.sweeps.figures.picture(sweep_id, "importance", objective=objective) if picture else ""
    if picture:
        _write(picture, drawn)
    if as_json:
        print_json(found)
        return
    for line in lines(found):
        click.echo(printable(line))


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A heading, and a line with a bar for each parameter that varies; the longest bar is that of the first one."""
    if not found["parameters"]:
        yield f"importances need {found['needed']} completed trials, and there are {found['completed']}"
        return
    of = found["objective"]["metric"] if found["objective"] else "the Pareto front"
    yield f"what matters for {of}: the best {found['best']} of {found['completed']} completed trials, compared with all"
    parameters = [each for each in found["parameters"] if not each["is_constant"]]
    longest = max((len(each["name"]) for each in parameters), default=0)
    most = max((each["importance"] for each in parameters), default=0.0) or 1.0
    for each in parameters:
        bar = _bar(each["importance"] / most)
        note = f"   active in {each['trials']} trials" if each["is_conditional"] else ""
        yield f"{each['name']:{longest}}  {each['importance']:4.0%}  {bar}{note}".rstrip()
    if constants := [each["name"] for each in found["parameters"] if each["is_constant"]]:
        yield f"constant: {', '.join(constants)}"


def _bar(share: float) -> str:
    whole, eighths = divmod(round(share * LONGEST_BAR * 8), 8)
    return "█" * whole + _EIGHTHS[eighths]


def _write(path: Path, drawn: str) -> None:
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error.strerror}; choose another file") from error
    click.echo(f"Wrote {path}", err=True)
