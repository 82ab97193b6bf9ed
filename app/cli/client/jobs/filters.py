"""Options that select jobs."""

import click

from app.cli.choice import SuggestingChoice
from app.domain.lifecycle.states import JobState

status_option = click.option(
    "--status",
    multiple=True,
    type=SuggestingChoice([str(state) for state in JobState], case_sensitive=False),
    callback=lambda _context, _option, values: tuple(value.upper() for value in values),
    help="Only jobs in this state; repeatable.",
)
