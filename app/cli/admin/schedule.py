"""`trainyard schedule`: explains scheduling decisions and simulates policies on a trace of jobs."""

import click

from app.cli.lazy_group import LazyGroup

_COMMANDS = {
    "explain": ("app.cli.admin.schedule_explain:explain", "Explain why a job waits, and where it can start."),
    "shares": ("app.cli.admin.schedule_shares:shares", "Show what each project uses of its deserved share."),
    "simulate": ("app.cli.admin.schedule_simulation:simulate", "Replay a trace of jobs under other policies."),
    "generate": ("app.cli.admin.schedule_simulation:generate", "Generate a trace of jobs for `simulate`."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def schedule() -> None:
    """Explain scheduling decisions; simulate other policies on files, which needs neither server nor key."""
