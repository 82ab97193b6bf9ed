"""Generated traces are the same for the same seed and have the requested load."""

from dataclasses import replace

import pytest

from simulation.generating import SIZES, Workload, make_cluster, make_trace

WORKLOAD = Workload(seed=3, jobs=3000, nodes=20)


def test_the_same_seed_gives_the_same_trace() -> None:
    assert make_trace(WORKLOAD) == make_trace(WORKLOAD)
    assert make_trace(WORKLOAD) != make_trace(replace(WORKLOAD, seed=4))


@pytest.mark.parametrize("load", [0.5, 1.2])
def test_generated_work_matches_the_requested_load(load: float) -> None:
    workload = replace(WORKLOAD, load=load)
    trace = make_trace(workload)

    work = sum(job.seconds * job.request.amount for job in trace)
    span = max(job.arrives_at for job in trace)

    assert work / span / make_cluster(workload).capacity("cuda") == pytest.approx(load, rel=0.1)


def test_sizes_projects_and_parts_are_as_often_as_they_should_be() -> None:
    trace = make_trace(WORKLOAD)

    for size, part in SIZES.items():
        assert sum(job.request.device_count == size for job in trace) / len(trace) == pytest.approx(part, abs=0.03)
    for project, (part, _) in WORKLOAD.projects.items():
        assert sum(job.project == project for job in trace) / len(trace) == pytest.approx(part, abs=0.03)
    assert sum(job.request.takes_part for job in trace) / len(trace) == pytest.approx(0.05, abs=0.02)
    assert all(job.max_runtime_seconds is None or job.max_runtime_seconds >= job.seconds for job in trace)


def test_no_job_is_larger_than_a_node() -> None:
    trace = make_trace(replace(WORKLOAD, gpus=2, jobs=200))

    assert {job.request.device_count for job in trace} == {1, 2}


def test_types_of_gpus_alternate_and_some_jobs_name_one() -> None:
    workload = replace(WORKLOAD, gpu_types=("h100", "a100"), jobs=200)

    assert make_cluster(workload).devices() == {"a100": 80, "h100": 80}
    assert {job.request.gpu_type for job in make_trace(workload)} == {"", "h100"}
    assert {quota.of("cuda").deserved for quota in make_cluster(workload).quotas.values()} == {48, 64}
