"""`trainyard doctor`: diagnoses a deployment and suggests fixes."""

from typing import Any

import click

from app.cli.output import json_option, print_json
from app.services.operations.diagnosis.findings import Level
from config.settings import SettingsError, load_settings

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
    from app.services.operations.diagnosis.checks import run_checks
    from app.services.operations.diagnosis.site import open_site

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
    add("settings", Level.OK, f"all are valid; the data directory is {settings.data.dir}", "")
    with open_site(settings) as site:
        for check, finding in run_checks(site):
            add(check, finding.level, finding.message, finding.fix)
    return rows
