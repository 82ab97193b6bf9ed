"""What the planner does with a made-up trace beside other policies, and how fast it is replayed.

    python -m benchmarks.simulation [--jobs 1000] [--nodes 10] [--seeds 3] [--scale 2500] [--picture FILE]

Every policy gets the same jobs, of several seeds: use of the GPUs, waits, fairness, preemptions. Then the default one
replays once, twice and four times as many jobs on as many more nodes: jobs per second, and how the time for each grows.
Then how far the estimated starts were from the real ones. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.domain.scheduling.planner import SchedulingPolicy
from benchmarks.machine import description
from simulation import comparing
from simulation.calibrating import RecordedEstimates, calibrate
from simulation.chart import draw, duration
from simulation.generating import Workload, make_cluster, make_trace
from simulation.jobs import Behaviour
from simulation.measuring import ReplayReport, measure
from simulation.planners import POLICIES, planned
from simulation.replay import Replay, replay
from simulation.trace import ReplayCluster

RESERVE_AFTER_SECONDS = 1800.0  # the default of the setting
POLICY = SchedulingPolicy(reserve_after_seconds=RESERVE_AFTER_SECONDS)
# How well running jobs know what they have left: exactly, and within about a fifth, and within about a half.
ETA_SIGMAS = (0.0, 0.2, 0.5)
Results = dict[str, tuple[Replay, ReplayReport]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=2500, help="jobs of the smallest replay that is timed")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args(arguments)
    machine = description()
    runs = [compared(Workload(jobs=given.jobs, nodes=given.nodes, seed=seed)) for seed in range(given.seeds)]
    if given.picture is not None:
        title = f"{given.jobs} made-up jobs on {given.nodes} nodes of 8 GPUs, seed 0"
        given.picture.write_text(draw(runs[0], title=title))
    report = {
        "benchmark": "simulation",
        "jobs": given.jobs,
        "nodes": given.nodes,
        "seeds": given.seeds,
        "policies": {name: medians(run[name][1] for run in runs) for name in POLICIES},
        "speed": [timed(given.scale * factor) for factor in (1, 2, 4)],
        "calibration": list(calibrations(Workload(jobs=given.jobs, nodes=given.nodes))),
        "machine": machine,
    }
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def compared(workload: Workload) -> Results:
    return comparing.compare(make_trace(workload), make_cluster(workload), POLICIES, POLICY, Behaviour())


def medians(reports: Iterable[ReplayReport]) -> dict[str, float]:
    """Of the seeds."""
    figures = [figures_of(report) for report in reports]
    return {name: round(statistics.median(each[name] for each in figures), 4) for name in figures[0]}


def figures_of(report: ReplayReport) -> dict[str, float]:
    waits, large = report.waits["all"][""], report.waits["devices"]["8"]
    return {
        "utilisation": report.utilisation["h100"],
        "mean_wait_seconds": waits.mean,
        "p95_wait_seconds": waits.p95,
        "longest_wait_seconds": waits.longest,
        "mean_wait_of_8_gpus_seconds": large.mean,
        "fairness": report.fairness,
        "preemptions": report.preemptions,
        "goodput": report.goodput,
        "makespan_seconds": report.makespan_seconds,
    }


def timed(jobs: int) -> dict[str, float]:
    """A replay of the default policy, a node for every hundred jobs."""
    workload = Workload(jobs=jobs, nodes=max(1, jobs // 100))
    trace, cluster = make_trace(workload), make_cluster(workload)
    started = time.monotonic()
    done = replay(trace, cluster, planned(POLICY))
    seconds = time.monotonic() - started
    return {
        "jobs": jobs,
        "nodes": workload.nodes,
        "seconds": round(seconds, 2),
        "passes": done.passes,
        "jobs_per_second": round(jobs / seconds, 1),
        "ms_per_pass": round(1000 * seconds / done.passes, 2),
        "fairness": round(measure(done).fairness, 4),
    }


def calibrations(workload: Workload) -> Iterable[dict[str, Any]]:
    """With the jobs as made, and without what no estimate can know: preemptions and the serving order of projects."""
    trace, cluster = make_trace(workload), make_cluster(workload)
    plain = [replace(job, project="default", priority=5, is_preemptible=False) for job in trace]
    for sigma in ETA_SIGMAS:
        for said, jobs, place in (("as made", trace, cluster), ("one line", plain, ReplayCluster(nodes=cluster.nodes))):
            estimates = RecordedEstimates()
            done = replay(jobs, place, planned(POLICY), Behaviour(eta_sigma=sigma), watch=estimates)
            found = asdict(calibrate(estimates.found, done.outcomes))
            yield {"jobs": said, "eta_sigma": sigma, **{name: round(value, 3) for name, value in found.items()}}


def table(report: dict[str, Any]) -> str:
    """For people, in Markdown."""
    lines = [
        "| policy | in use | mean wait | p95 | longest | mean of 8 GPUs | fairness | preempted | goodput | makespan |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in report["policies"].items():
        waits = [each[f"{what}_seconds"] for what in ("mean_wait", "p95_wait", "longest_wait", "mean_wait_of_8_gpus")]
        lines.append(
            f"| {name} | {each['utilisation']:.1%} | {' | '.join(duration(wait) for wait in waits)} | "
            f"{each['fairness']:.3f} | {each['preemptions']:g} | {each['goodput']:.1%} | "
            f"{duration(each['makespan_seconds'])} |"
        )
    lines += ["", "| jobs | nodes | seconds | passes | jobs/s | ms a pass |", "|---|---|---|---|---|---|"]
    names = ("jobs", "nodes", "seconds", "passes", "jobs_per_second", "ms_per_pass")
    lines += ["| " + " | ".join(f"{each[name]:g}" for name in names) + " |" for each in report["speed"]]
    lines += [
        "",
        "| jobs | sigma of etas | waited | estimated | median error | p90 | late |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each['jobs']} | {each['eta_sigma']:g} | {each['waited']} | {each['estimated']} | {each['median']:.0%} | "
        f"{each['p90']:.0%} | {each['late']:.0%} |"
        for each in report["calibration"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
