"""Traces and clusters from CSV files: our own format, and that of Alibaba's published GPU traces.

The format is detected by the header; the first that matches is used:

``openb``: ``cluster-trace-gpu-v2023`` of github.com/alibaba/clusterdata (``openb_pod_list_*.csv`` and
``openb_node_list_*.csv``; Weng et al., *Beware of Fragmentation*, USENIX ATC 2023). Times are seconds, CPUs and parts
of GPUs thousandths, memory MiB; ``gpu_spec`` names models separated by ``|``. Pods that never ran have no
``scheduled_time`` and are left out. QoS classes are mapped to priorities: latency sensitive and guaranteed jobs are not
preemptible, the others are. The trace has no projects: the QoS class is used instead.

``trainyard``: needs ``submitted_at`` and ``run_seconds`` for jobs, ``name`` for nodes; other columns are optional.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Request, gpu_types_of, normalise_gpu_type
from app.domain.units import WHOLE
from simulation.csv_rows import BadTrace, CsvRow, read_rows
from simulation.role_columns import FAILURES, ROLES, failures_text, roles_text, with_roles
from simulation.trace import TraceJob

# (priority, preemptible) of the QoS classes of the openb trace.
QOS: Mapping[str, tuple[int, bool]] = MappingProxyType(
    {"LS": (7, False), "Guaranteed": (7, False), "Burstable": (5, True), "BE": (3, True)}
)
JOB_COLUMNS = (
    "job_id",
    "submitted_at",
    "run_seconds",
    "project",
    "queue",
    "priority",
    "gpus",
    "gpu_type",
    "gpu_fraction",
    "nodes",
    "cpu_cores",
    "ram_mb",
    "preemptible",
    "min_runtime_seconds",
    "max_runtime_seconds",
    ROLES,
    FAILURES,
)
NODE_COLUMNS = ("name", "gpus", "gpu_type", "gpu_memory_mb", "cpu_slots", "cpu_cores", "ram_mb")
GPU_MEMORY_MB = 81_920  # default of traces without it


@dataclass(frozen=True, kw_only=True)
class Format:
    """Required columns and row parsers of a format; a parser returns None for a row to skip."""

    job_columns: frozenset[str]
    job: Callable[[CsvRow], TraceJob | None]
    node_columns: frozenset[str]
    node: Callable[[CsvRow], NodeCapacity]


def read_trace(file: str, lines: Iterable[str]) -> list[TraceJob]:
    """Jobs in the order of their arrival, the first at 0. Raises BadTrace with the line, the column and the rule."""
    header, rest = _header(file, lines)
    kind = next((each for each in FORMATS.values() if each.job_columns <= set(header)), None)
    if kind is None:
        raise _unknown(file, {name: each.job_columns for name, each in FORMATS.items()})
    found: dict[str, TraceJob] = {}
    for row in read_rows(file, rest, kind.job_columns):
        job = kind.job(row)
        if job is None:
            continue
        if job.job_id in found:
            raise BadTrace(f"{file}, line {row.line}: a job {job.job_id!r} occurs in an earlier line")
        found[job.job_id] = job
    if not found:
        raise BadTrace(f"{file}: holds no job that ran")
    first = min(job.arrives_at for job in found.values())
    jobs = [replace(job, arrives_at=round(job.arrives_at - first, 3)) for job in found.values()]
    return sorted(jobs, key=lambda job: (job.arrives_at, job.job_id))


def read_nodes(file: str, lines: Iterable[str]) -> list[NodeCapacity]:
    """Empty nodes. Raises BadTrace with the line, the column and the rule."""
    header, rest = _header(file, lines)
    kind = next((each for each in FORMATS.values() if each.node_columns <= set(header)), None)
    if kind is None:
        raise _unknown(file, {name: each.node_columns for name, each in FORMATS.items()})
    found: dict[str, NodeCapacity] = {}
    for row in read_rows(file, rest, kind.node_columns):
        node = kind.node(row)
        if node.name in found:
            raise BadTrace(f"{file}, line {row.line}: a node {node.name!r} occurs in an earlier line")
        found[node.name] = node
    if not any(node.devices for node in found.values()):
        raise BadTrace(f"{file}: holds no node with a device")
    return list(found.values())


def trace_lines(trace: Iterable[TraceJob]) -> Iterator[str]:
    """The jobs as lines of a file in our own format."""
    yield ",".join(JOB_COLUMNS)
    for job in trace:
        request = job.request
        # Instances of a job with roles have equal amounts here.
        each = request.roles[0].each if request.roles else request
        most = "" if job.max_runtime_seconds is None else f"{job.max_runtime_seconds:g}"
        gpus = request.device_count if request.device_kind == "cuda" else 0
        values = (
            job.job_id,
            repr(job.arrives_at),
            repr(job.seconds),
            job.project,
            job.queue,
            job.priority,
            "" if request.roles else gpus,
            "|".join(kind.name for kind in each.gpu_types),
            "" if request.roles else request.gpu_share / WHOLE,
            "" if request.roles else request.node_count,
            each.cpu_cores,
            each.ram_min_mb,
            str(job.is_preemptible).lower(),
            f"{job.min_runtime_seconds:g}",
            most,
            roles_text(request, job.restart_alone),
            failures_text(job),
        )
        yield ",".join(str(value) for value in values)


def node_lines(nodes: Iterable[NodeCapacity]) -> Iterator[str]:
    """Nodes, each with GPUs of one type, as lines of a file in our own format."""
    yield ",".join(NODE_COLUMNS)
    for node in nodes:
        gpus = [device for device in node.devices if not device.is_cpu]
        kind, memory_mb = (gpus[0].type, gpus[0].memory_mb) if gpus else ("", "")
        slots = len(node.devices) - len(gpus)
        yield f"{node.name},{len(gpus)},{kind},{memory_mb},{slots},{node.cpu_cores},{node.ram_mb}"


def _header(file: str, lines: Iterable[str]) -> tuple[list[str], Iterator[str]]:
    following = iter(lines)
    first = next(following, None)
    if first is None:
        raise BadTrace(f"{file}: is empty")

    def again() -> Iterator[str]:
        yield first
        yield from following

    return [name.strip() for name in first.split(",")], again()


def _unknown(file: str, columns: Mapping[str, frozenset[str]]) -> BadTrace:
    known = "; ".join(f"{name}: {', '.join(sorted(each))}" for name, each in columns.items())
    return BadTrace(f"{file}, line 1: the header matches no known format; required columns: {known}")


def _own_job(row: CsvRow) -> TraceJob:
    gpus = row.whole("gpus", 1)
    share = round(WHOLE * row.number("gpu_fraction", 1.0, least=0.01))
    nodes = row.whole("nodes", 1, least=1)
    if share > WHOLE or (share < WHOLE and (gpus, nodes) != (1, 1)):
        raise row.bad("gpu_fraction", "at most 1, and less only of a single GPU")
    seconds = row.number("run_seconds", least=0.001)
    most = row.number("max_runtime_seconds", least=0.001) if row.has("max_runtime_seconds") else None
    if most is not None and most < seconds:
        raise row.bad("max_runtime_seconds", f"no less than run_seconds, {seconds:g}")
    if (priority := row.whole("priority", 5)) > 10:
        raise row.bad("priority", "a whole number from 0 to 10")
    job = TraceJob(
        job_id=row.text("job_id", f"job{row.line:06}"),
        arrives_at=row.number("submitted_at", least=-1e12),
        seconds=seconds,
        project=row.text("project", "default"),
        queue=row.text("queue", "default"),
        priority=priority,
        is_preemptible=row.flag("preemptible"),
        min_runtime_seconds=row.number("min_runtime_seconds", 0.0),
        max_runtime_seconds=most,
        request=Request(
            node_count=nodes,
            device_count=gpus or 1,
            device_kind="cuda" if gpus else "cpu",
            gpu_share=share,
            gpu_types=gpu_types_of(_names(row.text("gpu_type"))) if gpus else (),
            cpu_cores=row.whole("cpu_cores", 0),
            ram_min_mb=row.whole("ram_mb", 0),
        ),
    )
    return with_roles(row, job)


def _own_node(row: CsvRow) -> NodeCapacity:
    name, memory_mb = normalise_gpu_type(row.text("gpu_type", "gpu"))
    return _node(
        row,
        "name",
        gpus=row.whole("gpus", 0),
        model=GpuType(name, row.whole("gpu_memory_mb", memory_mb)),
        slots=row.whole("cpu_slots", 0),
        cpu_cores=row.whole("cpu_cores", 0),
        ram_mb=row.whole("ram_mb", 0),
    )


def _openb_job(row: CsvRow) -> TraceJob | None:
    if not row.has("scheduled_time"):
        return None  # it never ran, so its runtime is unknown
    created, started = row.number("creation_time"), row.number("scheduled_time")
    ended = row.number("deletion_time")
    if ended < started:
        raise row.bad("deletion_time", f"no less than scheduled_time, {started:g}")
    gpus, part = row.whole("num_gpu"), row.whole("gpu_milli", 0)
    if row.text("qos") not in QOS:
        raise row.bad("qos", f"one of {', '.join(QOS)}")
    priority, is_preemptible = QOS[row.text("qos")]
    return TraceJob(
        # A pod that was deleted in the second of its start counts with one second.
        job_id=row.text("name"),
        arrives_at=created,
        seconds=max(1.0, ended - started),
        project=row.text("qos").lower(),
        priority=priority,
        is_preemptible=is_preemptible,
        request=Request(
            device_count=gpus or 1,
            device_kind="cuda" if gpus else "cpu",
            gpu_share=max(1, round(part / 10)) if gpus == 1 and 0 < part < 1000 else WHOLE,
            gpu_types=tuple(GpuType(name.lower()) for name in _names(row.text("gpu_spec"))) if gpus else (),
            cpu_cores=_cores(row.whole("cpu_milli")),
            ram_min_mb=row.whole("memory_mib"),
        ),
    )


def _openb_node(row: CsvRow) -> NodeCapacity:
    cores = row.whole("cpu_milli") // 1000
    # Many jobs without a GPU run on a machine: they share its cores and memory, and need a slot each.
    return _node(
        row,
        "sn",
        gpus=row.whole("gpu"),
        model=GpuType(row.text("model", "gpu").lower(), 0),
        slots=cores,
        cpu_cores=cores,
        ram_mb=row.whole("memory_mib"),
    )


def _node(
    row: CsvRow, name_column: str, *, gpus: int, model: GpuType, slots: int, cpu_cores: int, ram_mb: int
) -> NodeCapacity:
    if not row.has(name_column):
        raise row.bad(name_column, "the node's name")
    cards = tuple(
        Device(index=index, type=model.name, memory_mb=model.memory_mb or GPU_MEMORY_MB) for index in range(gpus)
    )
    devices = (*cards, *(Device(index=gpus + index, type="cpu") for index in range(slots)))
    return NodeCapacity(
        name=row.text(name_column),
        devices=devices,
        free=frozenset(range(len(devices))),
        cpu_cores=cpu_cores,
        ram_mb=ram_mb,
    )


def _names(text: str) -> list[str]:
    return [name for name in text.split("|") if name and name != "nan"]


def _cores(milli: int) -> int:
    return -(-milli // 1000)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "openb": Format(
            job_columns=frozenset(
                {
                    "name",
                    "cpu_milli",
                    "memory_mib",
                    "num_gpu",
                    "gpu_milli",
                    "gpu_spec",
                    "qos",
                    "creation_time",
                    "deletion_time",
                    "scheduled_time",
                }
            ),
            job=_openb_job,
            node_columns=frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"}),
            node=_openb_node,
        ),
        "trainyard": Format(
            job_columns=frozenset({"submitted_at", "run_seconds"}),
            job=_own_job,
            node_columns=frozenset({"name", "gpus"}),
            node=_own_node,
        ),
    }
)
