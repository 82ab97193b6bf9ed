"""`trainyard projects quota`: the quota of a project and its usage."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.connection import ServerGroup, server
from app.cli.output import Command, json_option, print_json, print_table
from app.domain.administration import MOST_OF_QUOTA

if TYPE_CHECKING:
    from trainyard.records import Project

# (option, path in the quota, minimum, maximum, whether it is an integer, help)
_LIMITS: tuple[tuple[str, tuple[str, ...], float, float, bool, str], ...] = (
    ("gpus-deserved", ("gpus", "deserved"), 0, MOST_OF_QUOTA, True, "GPUs the project is entitled to."),
    ("gpus-limit", ("gpus", "limit"), 0, MOST_OF_QUOTA, True, "Maximum GPUs in use at a time."),
    ("gpus-weight", ("gpus", "over_quota_weight"), 0, 1000, False, "Its share of GPUs beyond the deserved ones."),
    ("slots-deserved", ("cpu_slots", "deserved"), 0, MOST_OF_QUOTA, True, "CPU slots the project is entitled to."),
    ("slots-limit", ("cpu_slots", "limit"), 0, MOST_OF_QUOTA, True, "Maximum CPU slots in use at a time."),
    (
        "slots-weight",
        ("cpu_slots", "over_quota_weight"),
        0,
        1000,
        False,
        "Its share of CPU slots beyond the deserved ones.",
    ),
    ("running", ("max_running_jobs",), 0, MOST_OF_QUOTA, True, "Maximum running jobs."),
    (
        "waiting",
        ("max_waiting_jobs",),
        0,
        MOST_OF_QUOTA,
        True,
        "Maximum waiting jobs; further submissions are refused.",
    ),
    ("gpu-hours", ("gpu_hours_per_month",), 0, 1e9, False, "GPU-hours per calendar month (UTC)."),
    ("storage-gb", ("storage_gb",), 0, 1e9, False, "GB of checkpoints, results and files."),
)
NONE = "none"


class _Amount(click.ParamType[Any]):
    """A number in a range, or ``none`` for no limit."""

    name = "number|none"

    def __init__(self, low: float, high: float, *, is_whole: bool) -> None:
        self._range: click.ParamType[Any] = (
            click.IntRange(int(low), int(high)) if is_whole else click.FloatRange(low, high)
        )

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        return NONE if value == NONE else self._range.convert(value, param, ctx)


def _limit_options(command: Command) -> Command:
    for option, _, low, high, is_whole, meaning in reversed(_LIMITS):
        command = click.option(f"--{option}", type=_Amount(low, high, is_whole=is_whole), help=meaning)(command)
    return command


@click.group(cls=ServerGroup)
def quota() -> None:
    """Show the quota of a project; with a super admin's key change it, where `none` removes a limit."""


@quota.command("set")
@click.argument("name")
@_limit_options
@json_option
def set_quota(name: str, as_json: bool, **wanted: Any) -> None:  # noqa: FBT001
    """Change limits of the project NAME; the others are unchanged."""
    changes: dict[str, Any] = {}
    for option, place, *_ in _LIMITS:
        value = wanted[option.replace("-", "_")]
        if value is None:
            continue
        into = changes.setdefault(place[0], {}) if len(place) > 1 else changes
        into[place[-1]] = None if value == NONE else value
    if not changes:
        raise click.UsageError(f"give at least one of {', '.join(f'--{option}' for option, *_ in _LIMITS)}")
    with server() as client:
        client.projects.change(name, quota=changes)
        project = client.projects.get(name)
    _print(project, as_json=as_json)


@quota.command("show")
@click.argument("name")
@json_option
def show_quota(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Show the limits and the usage of the project NAME."""
    with server() as client:
        project = client.projects.get(name)
    _print(project, as_json=as_json)


def _print(project: "Project", *, as_json: bool) -> None:
    quota, usage = project["quota"], project["usage"]
    if as_json:
        print_json({"quota": quota, "usage": usage})
        return
    rows = [
        ("GPUs", usage["gpus"], *_of_devices(quota["gpus"])),
        ("CPU slots", usage["cpu_slots"], *_of_devices(quota["cpu_slots"])),
        ("running jobs", usage["running_jobs"], None, quota["max_running_jobs"], None),
        ("waiting jobs", usage["waiting_jobs"], None, quota["max_waiting_jobs"], None),
        ("GPU-hours this month", usage["gpu_hours"], None, quota["gpu_hours_per_month"], None),
        ("storage, GB", usage["storage_bytes"] / 1e9, None, quota["storage_gb"], None),
    ]
    print_table(("", "used", "deserved", "limit", "weight"), rows, empty="")


def _of_devices(quota: dict[str, Any]) -> tuple[Any, Any, Any]:
    return quota["deserved"], quota["limit"], quota["over_quota_weight"]
