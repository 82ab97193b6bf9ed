"""`trainyard doctor`: diagnoses a deployment and suggests fixes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from app.cli.output import json_option, print_json
from app.host.imports import uncollected_imports
from app.services.operations.diagnosis.findings import Level
from config.environment import client_environment
from config.settings import Settings, SettingsError, load_settings, own_sqlite

MARKS = {
    Level.OK: click.style("ok     ", fg="green"),
    Level.WARNING: click.style("warning", fg="yellow"),
    Level.FAILED: click.style("FAILED ", fg="red", bold=True),
    Level.SKIPPED: click.style("–      ", dim=True),
}
SETTINGS_FIX = "correct it in the environment of this process; docs/reference/settings.md lists the settings"


@click.command()
@json_option
def doctor(as_json: bool) -> None:  # noqa: FBT001
    """Check everything a deployment needs, from this machine, with this process's settings.

    On a machine without an installation, where TRAINYARD_URL names a server elsewhere, that server and the key alone.

    Exit code 1 if a check failed; warnings alone exit with 0. Nothing is changed.
    """
    rows = _rows(show=not as_json)
    worst = [row for row in rows if row["level"] == Level.FAILED]
    warnings = sum(row["level"] == Level.WARNING for row in rows)
    if as_json:
        print_json({"ok": not worst, "checks": rows})
    else:
        click.echo(f"\n{len(worst)} failed, {warnings} warnings, {len(rows)} findings")
    if worst:
        raise SystemExit(1)


def _rows(*, show: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def add(check: str, level: Level, message: str, fix: str) -> None:
        rows.append({"check": check, "level": str(level), "message": message, "fix": fix})
        if show:
            click.echo(f"{MARKS[level]}  {check + ':':<19} {message}" + (f"\n{'':30}→ {fix}" if fix else ""))

    try:
        settings = load_settings()
    except SettingsError as error:
        for problem in error.problems:
            add("settings", Level.FAILED, problem, SETTINGS_FIX)
        return rows
    if client_environment()[0] and not _is_installed(settings):
        for level, message, fix in _of_server(settings):
            add("server", level, message, fix)
        return rows
    with uncollected_imports():
        from app.services.operations.diagnosis.checks import run_checks
        from app.services.operations.diagnosis.site import open_site

    add("settings", Level.OK, f"all are valid; the data directory is {settings.data.dir}", "")
    with open_site(settings) as site:
        for check, finding in run_checks(site):
            add(check, finding.level, finding.message, finding.fix)
    return rows


def _is_installed(settings: Settings) -> bool:
    """Whether this machine has a database of its own, or its settings name one elsewhere."""
    own = own_sqlite(settings.data.dir)
    return settings.database.url != own or Path(own.removeprefix("sqlite:///")).exists()


def _of_server(settings: Settings) -> Iterator[tuple[Level, str, str]]:
    """What a machine that only uses a server can check: (level, message, fix)."""
    from trainyard.client import NO_RETRY, Client, ClientError, Forbidden

    url, key = client_environment()
    try:
        Client(url, key, patience=NO_RETRY).cluster()
    except Forbidden:
        yield Level.OK, f"{url} answers and takes the key, whose role may not see the cluster", ""
    except (ClientError, ValueError) as error:
        yield Level.FAILED, str(error), "correct TRAINYARD_URL or TRAINYARD_API_KEY, or ask who runs the server"
    else:
        yield Level.OK, f"{url} answers and takes the key", ""
    where = f"{settings.data.dir} has no installation"
    yield Level.SKIPPED, f"the rest: {where}; run doctor on the machine of the server of TRAINYARD_URL", ""
