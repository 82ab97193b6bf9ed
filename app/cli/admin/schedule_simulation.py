"""`trainyard schedule simulate` and `generate`: policies compared on a trace of jobs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.database import admin_database, cli_settings, failures_as_messages
from app.cli.output import json_option, print_json, print_table
from app.domain.scheduling.fair_share import ProjectQuota, merged, quota_of
from app.domain.scheduling.resources import NodeCapacity
from simulation.planners import POLICIES

if TYPE_CHECKING:
    from simulation.measuring import ReplayReport
    from simulation.trace import ReplayCluster, TraceJob
    from simulation.unstarted import Unstarted


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("trace", type=_FILE, metavar="FILE")
@click.option("--nodes", "nodes_file", type=_FILE, help="The nodes, as CSV.")
@click.option("--like-now", is_flag=True, help="Use the current nodes, project quotas and queue weights.")
@click.option("--quotas", type=_FILE, help='Quotas of projects, as JSON: {"red": {"gpus": {"deserved": 8}}}.')
@click.option(
    "--policy", "policies", type=SuggestingChoice(list(POLICIES)), multiple=True, help="Only this policy; repeatable."
)
@click.option(
    "--reserve-after",
    type=click.FloatRange(0),
    help="Seconds a job waits before nodes are reserved for it, instead of the setting.",
)
@click.option(
    "--save-seconds", type=click.FloatRange(0), default=20, show_default=True, help="Time to save on preemption."
)
@click.option("--picture", type=_OUT, help="Write a chart of the schedules, as SVG.")
@json_option
def simulate(
    trace: Path,
    nodes_file: Path | None,
    like_now: bool,  # noqa: FBT001
    quotas: Path | None,
    as_json: bool,  # noqa: FBT001
    **wanted: Any,
) -> None:
    """Replay the jobs of FILE, a CSV, under each policy and compare the results; the cluster is not touched."""
    from app.services.scheduling import planner
    from simulation import comparing
    from simulation.chart import draw
    from simulation.jobs import Behaviour
    from simulation.unstarted import unstarted

    if (nodes_file is None) is not like_now:
        raise click.UsageError("give the nodes by either --nodes FILE or --like-now")
    policy = planner.policy_of(cli_settings())
    if wanted["reserve_after"] is not None:
        policy = replace(policy, reserve_after_seconds=wanted["reserve_after"])
    with failures_as_messages():
        replayed = _trace(trace)
        cluster = _cluster(nodes_file, quotas)
        behaviour = Behaviour(save_seconds=wanted["save_seconds"])
        results = comparing.compare(replayed, cluster, wanted["policies"] or POLICIES, policy, behaviour)
    if wanted["picture"] is not None:
        wanted["picture"].write_text(draw(results, title=f"{len(replayed)} jobs of {trace.name}"))
    reports = {name: report for name, (_, report) in results.items()}
    never = unstarted({name: done for name, (done, _) in results.items()})
    if as_json:
        summary = {"jobs": len(replayed), "devices": cluster.devices(), "policies": comparing.documents(reports)}
        print_json({**summary, "never_started": [asdict(each) for each in never]})
        return
    _print_tables(reports)
    for each in never:
        click.echo(f"\n{_under(each, len(results))}{each.jobs} never started, first {each.first}: {each.why}")


@click.command()
@click.argument("trace", type=_OUT, metavar="FILE")
@click.argument("nodes", type=_OUT)
@click.option("--jobs", "count", type=click.IntRange(1, 1_000_000), default=1000, show_default=True)
@click.option("--node-count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--gpus", type=click.IntRange(1, 16), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--load",
    type=click.FloatRange(0.01, 10),
    default=0.9,
    show_default=True,
    help="Offered work as a fraction of the nodes' capacity.",
)
@click.option(
    "--wide",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="The fraction of whole-node jobs that take two or four nodes.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def generate(trace: Path, nodes: Path, count: int, as_json: bool, **wanted: Any) -> None:  # noqa: FBT001
    """Generate jobs and nodes and write them to FILE and NODES for `simulate`; a seed always gives the same ones."""
    from simulation.generating import Workload, make_cluster, make_trace
    from simulation.reading import node_lines, trace_lines

    workload = Workload(
        jobs=count,
        nodes=wanted["node_count"],
        gpus=wanted["gpus"],
        load=wanted["load"],
        seed=wanted["seed"],
        wide=wanted["wide"],
    )
    made, cluster = make_trace(workload), make_cluster(workload)
    _write(trace, trace_lines(made))
    _write(nodes, node_lines(cluster.nodes))
    days = made[-1].arrives_at / 86_400
    if as_json:
        print_json({"jobs": len(made), "days": round(days, 3), "nodes": len(cluster.nodes)})
        return
    click.echo(f"{len(made)} jobs of {days:.1f} days in {trace}, {len(cluster.nodes)} nodes in {nodes}")


def _print_tables(reports: "Mapping[str, ReplayReport]") -> None:
    from simulation import comparing

    print_table(comparing.HEADS, comparing.rows(reports), empty="")
    click.echo()
    print_table(comparing.WAIT_HEADS, comparing.wait_rows(reports), empty="no job started")
    if of_roles := comparing.role_rows(reports):
        click.echo()
        print_table(comparing.ROLE_HEADS, of_roles, empty="")


def _under(each: "Unstarted", policies: int) -> str:
    return "" if len(each.policies) == policies else f"{', '.join(each.policies)}: "


def _trace(path: Path) -> "list[TraceJob]":
    from simulation.reading import read_trace

    with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        return read_trace(path.name, lines)


def _cluster(nodes_file: Path | None, quotas: Path | None) -> "ReplayCluster":
    from simulation.trace import ReplayCluster

    found = ReplayCluster(nodes=_nodes(nodes_file)) if nodes_file is not None else _current_cluster()
    return found if quotas is None else replace(found, quotas={**found.quotas, **_quotas(quotas)})


def _nodes(path: Path) -> Sequence[NodeCapacity]:
    from simulation.reading import read_nodes

    with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        return read_nodes(path.name, lines)


def _current_cluster() -> "ReplayCluster":
    from app.services.scheduling.idle_cluster import idle_cluster
    from simulation.trace import ReplayCluster

    with admin_database() as db, db.read() as session:
        idle = idle_cluster(session)
    return ReplayCluster(nodes=idle.nodes, quotas=idle.quotas, queue_weights=idle.queue_weights)


def _quotas(path: Path) -> dict[str, ProjectQuota]:
    from marshmallow import ValidationError

    from app.schemas.projects import QuotaSchema

    try:
        wanted = json.loads(path.read_text())
        if not isinstance(wanted, dict):
            raise click.ClickException(f"{path.name}: must be an object that maps projects to quotas")
        return {name: quota_of(merged({}, QuotaSchema().load(quota))) for name, quota in wanted.items()}
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{path.name}: is not valid JSON: {error}") from error
    except ValidationError as error:
        raise click.ClickException(f"{path.name}: {error.messages}") from error


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
