"""How a job that no node could ever hold is refused."""

from collections.abc import Iterable
from typing import Any

import pytest

from app.domain.errors import CannotFit
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.resources import Device, NodeCapacity, Request, gpu_types_of, request_of
from app.domain.spec.model import JobDocument, ResourceConfig


def node(name: str, count: int, kind: str = "a100", memory_mb: int = 81920, **more: object) -> NodeCapacity:
    devices = tuple(Device(index=i, type=kind, memory_mb=memory_mb) for i in range(count))
    values = {"cpu_cores": 8, "ram_mb": 1000, "storage_mb": 1000, **more}
    return NodeCapacity(name=name, devices=devices, free=frozenset(), **values)  # type: ignore[arg-type]


def cuda(count: int = 1, **more: object) -> Request:
    return Request(device_count=count, device_kind="cuda", **more)  # type: ignore[arg-type]


def asking(count: int, *, calls_for: Iterable[str] = (), keeps_from: Iterable[str] = ()) -> Request:
    return cuda(count, required_labels=frozenset(calls_for), forbidden_labels=frozenset(keeps_from))


def test_without_nodes_nothing_is_refused() -> None:
    refuse_unfitting(cuda(99), [])
    with pytest.raises(CannotFit):
        refuse_unfitting(cuda(99), [node("a", 1)])


def test_a_busy_node_that_would_fit_is_enough() -> None:
    refuse_unfitting(cuda(2), [node("a", 1), node("b", 2)])
    with pytest.raises(CannotFit):
        refuse_unfitting(cuda(2), [node("a", 1)])


@pytest.mark.parametrize(
    ("request_", "field", "said"),
    [
        (cuda(8), "resource_config.gpu_count", "gpu_count that would fit is 4, on node b"),
        (
            cuda(1, gpu_types=gpu_types_of("h100")),
            "resource_config.gpu_type",
            "known: a100; the largest that would fit is 4 a100",
        ),
        (cuda(1, gpu_types=gpu_types_of(["H100", "B200"])), "resource_config.gpu_type", "type 'h100' or 'b200'; known"),
        (cuda(1, gpu_types=gpu_types_of(["H100", "A100-160GB"])), "resource_config.gpu_type", "a100 has 81920 MB"),
        (cuda(1, gpu_types=gpu_types_of("160GB")), "resource_config.gpu_type", "the largest a100 has 81920 MB"),
        (cuda(8, gpu_types=gpu_types_of(["H100", "A100"])), "resource_config.gpu_count", "that would fit is 4"),
        (cuda(1, gpu_memory_min_mb=200_000), "resource_config.gpu_memory_min_mb", "fit is 81920"),
        (cuda(1, cpu_cores=64), "resource_config.cpu_cores", "fit is 8"),
        (cuda(1, ram_min_mb=64_000), "resource_config.ram_min_mb", "fit is 1000"),
        (cuda(1, storage_min_mb=64_000), "resource_config.storage_min_mb", "fit is 1000"),
        (cuda(1, required_capabilities=frozenset({"fp8"})), "scheduling_config.required_capabilities", "offered: bf16"),
        (
            cuda(1, required_capabilities=frozenset({"mpi"})),
            "scheduling_config.required_capabilities",
            "Open MPI there",
        ),
        (
            cuda(1, required_capabilities=frozenset({"bf16", "deepspeed"})),
            "scheduling_config.required_capabilities",
            "DEEPSPEED needs it, and a node offers deepspeed when its worker finds the library: pip install",
        ),
        (
            cuda(1, required_capabilities=frozenset({"packages", "python:3.13"})),
            "scheduling_config.required_capabilities",
            "training_config.packages.python needs python:3.13, and a node offers it when its worker finds python3.13",
        ),
        (
            asking(3, calls_for={"rack-1"}),
            "resource_config.required_node_labels",
            "that could hold this job are b (rack-2)",
        ),
        (
            asking(1, calls_for={"rack-1", "b"}),
            "resource_config.required_node_labels",
            "with 1 GPU is labelled b, rack-1; those",
        ),
        (asking(3, keeps_from={"rack-2"}), "resource_config.forbidden_node_labels", "has a forbidden one: b (rack-2)"),
        (asking(1, keeps_from={"a", "rack-2"}), "resource_config.forbidden_node_labels", "one: a (rack-1), b (rack-2)"),
        (cuda(9, cpu_cores=64), "resource_config", "could ever give that"),
        (Request(device_count=1, device_kind="cpu"), "resource_config", "largest that would fit is 4 a100"),
    ],
)
def test_the_field_that_asks_for_too_much_is_named_with_what_would_fit(
    request_: Request, field: str, said: str
) -> None:
    nodes = [
        node("a", 2, capabilities=frozenset({"bf16"}), labels=frozenset({"rack-1"})),
        node("b", 4, labels=frozenset({"rack-2"})),
    ]

    with pytest.raises(CannotFit) as raised:
        refuse_unfitting(request_, nodes)

    assert raised.value.field == field
    assert said in raised.value.message


def test_only_nodes_that_the_job_calls_for_are_said_to_be_kept_away_from() -> None:
    nodes = [node("a", 2, labels=frozenset({"gold"})), node("b", 2)]

    with pytest.raises(CannotFit, match=r"has a forbidden one: a \(gold\);") as raised:
        refuse_unfitting(asking(1, calls_for={"gold"}, keeps_from={"a"}), nodes)

    assert raised.value.field == "resource_config.forbidden_node_labels"


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"gpu_memory_min_mb": 30_000}, "gpu_memory_min_mb"),
        ({"gpu_memory_min_mb": 30_000, "gpu_fraction": 0.5}, "gpu_memory_min_mb"),
        ({"gpu_memory_request_mb": 1000}, "gpu_memory_request_mb"),
        ({"gpu_fraction": 0.5}, "gpu_fraction"),
    ],
)
def test_what_only_a_gpu_has_is_refused_where_there_is_none(resources: dict[str, Any], field: str) -> None:
    request = request_of(JobDocument(resource_config=ResourceConfig(**resources)), has_gpus=False)

    with pytest.raises(CannotFit, match=rf"no GPU is registered; leave {' and '.join(resources)} out") as raised:
        refuse_unfitting(request, [node("a", 2, kind="cpu", memory_mb=0)])

    assert raised.value.field == f"resource_config.{field}"


def test_without_gpus_the_remedy_is_the_cpu() -> None:
    with pytest.raises(CannotFit, match=r"device_type cpu.*2 CPU slots on node a"):
        refuse_unfitting(cuda(1), [node("a", 2, kind="cpu", memory_mb=0)])
    with pytest.raises(CannotFit, match="no GPU is registered: ask for device_type cpu"):
        refuse_unfitting(cuda(1, gpu_types=gpu_types_of("a100")), [node("a", 2, kind="cpu")])
