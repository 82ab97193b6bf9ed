"""Traces from files: our own columns and Alibaba's, and the errors for invalid lines."""

from dataclasses import replace

import pytest

from app.domain.scheduling.resources import GpuType
from simulation.csv_rows import BadTrace
from simulation.generating import Workload, make_trace
from simulation.reading import FORMATS, JOB_COLUMNS, NODE_COLUMNS, read_nodes, read_trace, trace_lines

OWN = """submitted_at,run_seconds,project,priority,gpus,gpu_type,gpu_fraction,preemptible,max_runtime_seconds
1000.5,60,vision,7,2,A100|H100,,true,90
990,30,,,1,,0.5,,
991,30,,,0,,,0,
"""
# Written by hand in the columns of the trace.
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
made-up-1,3500,8192,1,330,,BE,Running,500,900,510
made-up-2,8000,65536,4,1000,V100M16|V100M32,LS,Succeeded,480,480,480
made-up-3,1000,1024,0,0,,Burstable,Failed,600,700,600
made-up-4,1000,1024,1,1000,,LS,Pending,600,700,
"""
OPENB_NODES = """sn,cpu_milli,memory_mib,gpu,model
made-up-a,32000,262144,2,V100M16
made-up-b,4000,16384,0,
"""


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def test_our_own_columns_may_be_left_out_and_the_first_job_comes_at_0() -> None:
    first, second, third = read_trace("t.csv", lines(OWN))

    assert (first.arrives_at, second.arrives_at, third.arrives_at) == (0, 1, 10.5)
    assert (third.project, third.priority, third.is_preemptible, third.max_runtime_seconds) == ("vision", 7, True, 90)
    assert third.request.device_count == 2
    assert third.request.gpu_types == (GpuType("a100"), GpuType("h100"))
    assert (first.project, first.priority, first.request.gpu_share) == ("default", 5, 50)
    assert second.request.device_kind == "cpu"


def test_the_columns_of_alibabas_trace_are_read() -> None:
    typed, shared, cpu = read_trace("openb_pod_list.csv", lines(OPENB))

    assert [job.job_id for job in (typed, shared, cpu)] == ["made-up-2", "made-up-1", "made-up-3"]
    assert (shared.arrives_at, shared.seconds, shared.project) == (20, 390, "be")
    assert (shared.request.gpu_share, shared.request.cpu_cores, shared.request.ram_min_mb) == (33, 4, 8192)
    assert (shared.is_preemptible, typed.is_preemptible) == (True, False)
    assert typed.request.gpu_types == (GpuType("v100m16"), GpuType("v100m32"))
    assert (typed.seconds, typed.request.device_count, typed.request.gpu_share) == (1, 4, 100)
    assert (cpu.request.device_kind, cpu.request.gpu_types) == ("cpu", ())


def test_nodes_of_either_kind_are_read() -> None:
    gpu, plain = read_nodes("openb_node_list.csv", lines(OPENB_NODES))
    (own,) = read_nodes("n.csv", lines("name,gpus,gpu_type,cpu_slots,cpu_cores,ram_mb\nbox,2,A100-80GB,1,16,64000\n"))

    assert [device.type for device in gpu.devices[:3]] == ["v100m16", "v100m16", "cpu"]
    assert (len(gpu.devices), gpu.cpu_cores, gpu.ram_mb, len(plain.devices)) == (34, 32, 262144, 4)
    assert [(device.type, device.memory_mb) for device in own.devices] == [("a100", 81920)] * 2 + [("cpu", 0)]
    assert own.free == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv: is empty"),
        ("a,b\n1,2\n", "line 1: the header matches no known format"),
        ("submitted_at,run_seconds\n", "holds no job that ran"),
        ("submitted_at,run_seconds\n0,10\n0,\n", "line 3, column run_seconds: is empty and has to be a number"),
        ("submitted_at,run_seconds\n0,soon\n", "line 2, column run_seconds: is 'soon' and has to be a number"),
        ("submitted_at,run_seconds\n0,nan\n", "line 2, column run_seconds: is 'nan'"),
        ("submitted_at,run_seconds\n0,inf\n", "line 2, column run_seconds: is 'inf'"),
        ("submitted_at,run_seconds\n0,-1\n", "from 0.001 on"),
        ("submitted_at,run_seconds,gpus\n0,1,1.5\n", "column gpus: is '1.5' and has to be a whole number from 0 on"),
        ("submitted_at,run_seconds,priority\n0,1,11\n", "from 0 to 10"),
        ("submitted_at,run_seconds,preemptible\n0,1,maybe\n", "has to be true or false"),
        ("submitted_at,run_seconds,gpus,gpu_fraction\n0,1,2,0.5\n", "less only of a single GPU"),
        ("submitted_at,run_seconds,max_runtime_seconds\n0,10,5\n", "no less than run_seconds, 10"),
        ("submitted_at,run_seconds,job_id\n0,1,j\n0,1,j\n", "line 3: a job 'j' occurs in an earlier line"),
        ("submitted_at,run_seconds\n0,1,2\n", "line 2: has more values than the header has columns"),
        (OPENB.replace("900,510", "500,510"), "column deletion_time: is '500' and has to be no less than"),
        (OPENB.replace(",BE,", ",XX,"), "column qos: is 'XX' and has to be one of LS, Guaranteed, Burstable, BE"),
    ],
)
def test_a_bad_line_is_reported_with_its_column_and_the_rule(text: str, said: str) -> None:
    with pytest.raises(BadTrace) as refused:
        read_trace("t.csv", lines(text))

    assert refused.value.message.startswith("t.csv")
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,gpu\n", "no known format"),
        ("name,gpus\nbox,0\n", "holds no node with a device"),
        ("name,gpus\nbox,1\nbox,1\n", "line 3: a node 'box' occurs in an earlier line"),
        ("name,gpus\n,1\n", "column name: is empty and has to be the node's name"),
    ],
)
def test_a_bad_line_of_nodes_is_reported_with_its_column_and_the_rule(text: str, said: str) -> None:
    with pytest.raises(BadTrace, match=said):
        read_nodes("n.csv", lines(text))


def test_what_is_written_is_read_again() -> None:
    trace = make_trace(Workload(jobs=50, gpu_types=("h100", "a100"), parts=0.3))
    first = trace[0].arrives_at

    read = read_trace("t.csv", trace_lines(trace))

    assert read == [replace(job, arrives_at=round(job.arrives_at - first, 3)) for job in trace]


def test_every_column_that_is_documented_is_one_that_is_read() -> None:
    own = FORMATS["trainyard"]

    assert own.job_columns <= set(JOB_COLUMNS)
    assert own.node_columns <= set(NODE_COLUMNS)
