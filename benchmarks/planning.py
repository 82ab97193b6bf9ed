"""The pure planner on a loaded cluster (B6): a full pass, and passes after one event, at 1×, 2× and 4× of the size.

    python -m benchmarks.planning [--jobs 25000] [--nodes 2500] [--rounds 3] [--events 500]

The cluster is drawn by a seed: four kinds of GPU nodes in 40 racks with 8 GPUs each, 95 of 100 GPUs in use by running
jobs of which every other may be preempted, some GPUs shared; 50 projects with guarantees, limits and different use. The
jobs that wait are made from 100 templates, some of them far more often than others, which ask for 1 to 8 GPUs or a part
of one, types, memory, cores and RAM; one job in ten wants a certain rack, one in three says how long it may run, and
many have waited long enough to have devices kept. After the pass come ``--events`` of each kind, one by one: a job is
submitted, or a running one ends and its devices are free; each is followed by an incremental pass, or by a full one
where that has to be. Each size is planned in a process of its own. One JSON line on standard output, a table on
standard error.
"""

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

from app.domain.scheduling.cluster_state import ClusterState
from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.incremental_planner import IncrementalPlanner
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Quantities, Request
from app.domain.scheduling.serving_order import Accounts, JobUsage
from benchmarks.machine import description

SECONDS, MEBIBYTES, GROWTH = 2.0, 1024, 2.3
EVENT_MS = 50.0
FULL_JOBS, FULL_NODES = 100_000, 10_000
GPUS_PER_NODE = 8
RACKS, PROJECTS, TEMPLATES = 40, 50, 100
IN_USE = 0.95
TYPES = (("h100", 81_920), ("a100", 81_920), ("a100", 40_960), ("l40s", 49_152))
NOW = 1e6
POLICY = SchedulingPolicy(now=NOW, reserve_after_seconds=1800)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=FULL_JOBS // 4, help="of the smallest size")
    parser.add_argument("--nodes", type=int, default=FULL_NODES // 4, help="of the smallest size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=500, help="of each kind, after the pass")
    parser.add_argument("--one", action="store_true", help="only that size, once, in this process")
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(run_pass(given.jobs, given.nodes, given.events)))
        return
    rounds = [[_apart(given.jobs * n, given.nodes * n, given.events) for n in (1, 2, 4)] for _ in range(given.rounds)]
    sizes = [_median(each) for each in zip(*rounds, strict=True)]
    growth = [round(after["seconds"] / before["seconds"], 2) for before, after in itertools.pairwise(sizes)]
    report = {
        "benchmark": "planning",
        "rounds": given.rounds,
        "sizes": sizes,
        "growth": growth,
        "machine": description(),
    }
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def run_pass(jobs: int, nodes: int, events: int) -> dict[str, Any]:
    """One full pass over such a cluster, with what it decided, and what follows."""
    cluster, running, accounts = cluster_of(nodes)
    waiting = waiting_of(jobs)
    before = _mebibytes()
    began = time.perf_counter()
    planning = Planning(cluster, accounts, running, POLICY)
    planning.go_on(waiting)
    made = planning.result()
    seconds = time.perf_counter() - began
    peak = _mebibytes()
    return {
        "jobs": jobs,
        "nodes": nodes,
        "running": len(running),
        "shapes": len({job.request for job in waiting}),
        "seconds": round(seconds, 3),
        "jobs_per_second": round(jobs / seconds),
        "snapshot_mib": before,
        "peak_mib": peak,
        **decided(made),
        **followed(planning.cluster, made, waiting, running, events, seconds),
    }


def followed(
    cluster: ClusterState,
    made: Plan,
    waiting: list[QueuedJob],
    running: list[Running],
    events: int,
    full_seconds: float,
) -> dict[str, Any]:
    """What events cost after the pass; one that needs a full pass again counts as long as that took."""
    began = time.perf_counter()
    following = IncrementalPlanner(cluster, made, waiting)
    ready = time.perf_counter() - began
    draw = random.Random(3)
    jobs = [replace(job, job_id=f"new-{job.job_id}", since=NOW) for job in draw.choices(waiting, k=events)]
    ended = draw.sample(running, min(events, len(running)))
    times: dict[str, list[float]] = {"submitted": [], "ended": []}
    full, placed = 0, 0
    for job, gone in itertools.zip_longest(jobs, ended):
        for kind in ("submitted", "ended"):
            began = time.perf_counter()
            if kind == "submitted":
                found = following.submitted([job])
            else:
                node = cluster.node_index.nodes[gone.node].without(gone.devices, gone.share, gone.quantities)
                found = following.ended([_use(gone)], [node])
            times[kind].append(time.perf_counter() - began if found is not None else full_seconds)
            full += found is None
            placed += len(found.placements) if found is not None else 0
    all_times = sorted(itertools.chain(*times.values()))
    return {
        "ready_seconds": round(ready, 3),
        "events": len(all_times),
        "full_again": full,
        "placed_after": placed,
        **{f"{kind}_ms": _percentiles(found) for kind, found in {**times, "event": all_times}.items()},
    }


def _use(gone: Running) -> JobUsage:
    return JobUsage(project=gone.project, queue="default", kind=gone.kind, devices=gone.amount, is_preemptible=True)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        name: round(1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2)
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def decided(made: Plan) -> dict[str, int]:
    return {
        "placed": len(made.placements),
        "preempted": len(made.preemptions),
        "explained": len(made.pending_reasons),
        "kept": sum("kept for it" in said for said in made.pending_reasons.values()),
    }


def cluster_of(count: int, seed: int = 1) -> tuple[list[NodeCapacity], list[Running], Accounts]:
    """Nodes with what runs on them, and the projects."""
    draw = random.Random(seed)
    nodes, running = [], []
    used = [0.0] * PROJECTS
    for number in range(count):
        kind, memory_mb = TYPES[number % len(TYPES)]
        devices = tuple(Device(index=i, type=kind, memory_mb=memory_mb) for i in range(GPUS_PER_NODE))
        there = _running_on(draw, f"node-{number:05}")
        for each in there:
            used[int(each.project[1:])] += each.amount
        running += there
        nodes.append(_node(draw, number, devices, there))
    deserved = count * GPUS_PER_NODE // PROJECTS
    quota = [DeviceQuota(deserved=draw.choice((deserved // 2, deserved)), limit=4 * deserved) for _ in range(PROJECTS)]
    standings = {
        f"p{number}": QuotaUsage(quota=ProjectQuota(devices={"cuda": each}), used={"cuda": used[number]})
        for number, each in enumerate(quota)
    }
    return nodes, running, Accounts(projects=standings)


def waiting_of(count: int, seed: int = 2) -> list[QueuedJob]:
    """The line; jobs that ask for the same share one request, as they do when they are read."""
    draw = random.Random(seed)
    templates = [_template(draw) for _ in range(TEMPLATES)]
    popularity = [1 / (number + 1) for number in range(TEMPLATES)]
    shapes: dict[Request, Request] = {}
    jobs = []
    for number in range(count):
        (request,) = draw.choices(templates, popularity)
        if draw.random() < 0.1:
            request = replace(request, required_labels=frozenset({f"rack-{draw.randrange(RACKS)}"}))
        jobs.append(
            QueuedJob(
                job_id=f"job-{number:06}",
                priority=draw.randrange(11),
                since=NOW - draw.random() * 7200,
                request=shapes.setdefault(request, request),
                queue="default",
                project=f"p{draw.randrange(PROJECTS)}",
                is_preemptible=draw.random() < 0.5,
                max_seconds=draw.choice((None, None, 3600.0)),
            )
        )
    return jobs


def _running_on(draw: random.Random, node: str) -> list[Running]:
    free = {index for index in range(GPUS_PER_NODE) if draw.random() > IN_USE}
    left = sorted(set(range(GPUS_PER_NODE)) - free)
    found: list[Running] = []
    while left:
        taken, left = left[: (size := draw.choice((1, 1, 2, 4, 8)))], left[size:]
        share = draw.choice((25, 50)) if len(taken) == 1 and draw.random() < 0.1 else 100
        found.append(
            Running(
                job_id=f"{node}-{len(found)}",
                project=f"p{draw.randrange(PROJECTS)}",
                node=node,
                kind="cuda",
                priority=draw.randrange(11),
                devices=frozenset(taken),
                share=share,
                quantities=Quantities(cpu_cores=4 * len(taken), ram_mb=32_000 * len(taken)),
                may_be_preempted=draw.random() < 0.5,
                is_stopping=draw.random() < 0.01,
                loss=draw.random() * 1800 * len(taken),
                ends_in=draw.choice((None, draw.random() * 86_400)),
            )
        )
    return found


def _node(draw: random.Random, number: int, devices: tuple[Device, ...], there: list[Running]) -> NodeCapacity:
    whole = NodeCapacity(
        name=f"node-{number:05}",
        devices=devices,
        free=frozenset(range(GPUS_PER_NODE)),
        cpu_cores=128,
        ram_mb=1_000_000 + draw.randrange(9000),
        storage_mb=8_000_000 + draw.randrange(9000),
        capabilities=frozenset({"training"}),
        labels=frozenset({f"rack-{number % RACKS}", "ib"}),
        reputation=1 - 0.2 * draw.random(),
    )
    for each in there:
        whole = whole.given(each.devices, each.share)
    held = Quantities()
    for each in there:
        held += each.quantities
    return replace(whole, held=held, active_jobs=len(there))


def _template(draw: random.Random) -> Request:
    if draw.random() < 0.1:
        return Request(device_kind="cuda", gpu_share=draw.choice((25, 50)))
    kind = draw.choice(("", "h100", "a100", "l40s"))
    return Request(
        device_kind="cuda",
        device_count=draw.choice((1, 1, 1, 2, 4, 8)),
        gpu_types=(GpuType(kind),) if kind else (),
        gpu_memory_min_mb=draw.choice((0, 40_000, 80_000)),
        cpu_cores=draw.choice((0, 8)),
        ram_min_mb=draw.choice((0, 64_000)),
    )


def _apart(jobs: int, nodes: int, events: int) -> dict[str, Any]:
    sizes = ["--jobs", str(jobs), "--nodes", str(nodes), "--events", str(events)]
    command = [sys.executable, "-m", "benchmarks.planning", "--one", *sizes]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _median(rounds: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Of the rounds, the one whose full pass is the median; what follows it is its own, too."""
    return sorted(rounds, key=lambda each: each["seconds"])[len(rounds) // 2]


def _mebibytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def table(report: dict[str, Any]) -> str:
    lines = [f"{'jobs':>8} {'nodes':>7} {'running':>8} {'shapes':>7} {'seconds':>8} {'jobs/s':>8} {'peak MiB':>9}"]
    lines += [
        f"{each['jobs']:8} {each['nodes']:7} {each['running']:8} {each['shapes']:7} {each['seconds']:8.2f} "
        f"{each['jobs_per_second']:8} {each['peak_mib']:9}"
        for each in report["sizes"]
    ]
    growth = " and ".join(f"{each:.2f} ×" for each in report["growth"])
    lines += ["", f"{'jobs':>8} {'events':>7} {'full again':>10} {'p50 ms':>7} {'p99 ms':>7}, submitted and ended:"]
    lines += [
        f"{each['jobs']:8} {each['events']:7} {each['full_again']:10} {each['event_ms']['p50']:7.1f} "
        f"{each['event_ms']['p99']:7.1f}, {each['submitted_ms']} and {each['ended_ms']}"
        for each in report["sizes"]
    ]
    largest = report["sizes"][-1]
    is_kept = largest["seconds"] <= SECONDS and largest["peak_mib"] <= MEBIBYTES and max(report["growth"]) <= GROWTH
    said = "kept" if is_kept and largest["event_ms"]["p99"] <= EVENT_MS else "NOT KEPT"
    goal = f"goal at {FULL_JOBS} × {FULL_NODES}: ≤ {SECONDS:g} s, ≤ {MEBIBYTES} MiB, ≤ {GROWTH} × a doubling, "
    goal += f"p99 after an event ≤ {EVENT_MS:g} ms: {said}"
    return "\n".join([*lines, f"a doubling of both costs a full pass {growth}", goal])


if __name__ == "__main__":
    main(sys.argv[1:])
