"""Whether a training fits devices: what is refused, what is warned about, and ways out that were estimated."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.memory.estimate import estimate
from app.domain.memory.fit import Fit, devices_within_reach, fit_of
from app.domain.memory.known_models import known_config
from app.domain.memory.ways_out import ways_out
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.spec.model import JobDocument
from tests.unit.domain.memory.test_estimate import document

_GB = 2**30
LLAMA_8B = known_config("meta-llama/Llama-3.1-8B") or {}


def node(memory_gb: int, kind: str = "a100", *, count: int = 8, name: str = "n1") -> NodeCapacity:
    devices = tuple(Device(index=index, type=kind, memory_mb=memory_gb * 1024) for index in range(count))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(count)))


def request(count: int = 1, **changes: Any) -> Request:
    return Request(device_kind="cuda", device_count=count, **changes)


def fit(job: JobDocument, nodes: Iterable[NodeCapacity], asked: Request | None = None) -> Fit:
    return fit_of(job, LLAMA_8B, asked or request(), nodes)


def test_job_that_fits_says_what_it_needs():
    found = fit(document("QLORA"), [node(80)])

    assert found.verdict == "fits"
    assert found.message.startswith("needs about ")
    assert found.message.endswith("GB on the device; a100 has 80")
    assert found.ways_out == ()


def test_job_that_does_not_fit_has_ways_out_that_fit():
    found = fit(document("SFT"), [node(40)], request(2))

    assert found.verdict == "does_not_fit"
    assert " GB on each of 2 devices; a100 has 40: " in found.message
    assert found.ways_out
    assert all(each.bytes <= 40 * _GB for each in found.ways_out)
    assert {each.change.partition(" ")[0] for each in found.ways_out} >= {"LORA", "QLORA", "FSDP"}


def test_every_way_out_is_estimated_with_its_own_fields():
    job = document("SFT", data={"batch_size": 16, "max_seq_length": 4096})

    for way in ways_out(job, LLAMA_8B, device_count=1, device_kind="cuda", available=80 * _GB):
        count = way.fields.get("resource_config.gpu_count", 1)
        changed = estimate(_with(job, way.fields), LLAMA_8B, device_count=count)
        assert changed.total_bytes == way.bytes, way.change


def test_smaller_batches_keep_the_records_of_a_step():
    job = document("LORA", data={"batch_size": 64, "gradient_accumulation_steps": 2})

    (way, *_) = ways_out(job, LLAMA_8B, device_count=1, device_kind="cuda", available=60 * _GB)

    size, steps = way.fields["data_config.batch_size"], way.fields["data_config.gradient_accumulation_steps"]
    assert size * steps == 128
    larger = document("LORA", data={"batch_size": 2 * size, "gradient_accumulation_steps": steps // 2})
    assert estimate(larger, LLAMA_8B, device_count=1).total_bytes > 60 * _GB


def test_dpo_can_train_an_adapter():
    found = ways_out(document("DPO"), LLAMA_8B, device_count=1, device_kind="cuda", available=40 * _GB)

    assert next(each.change for each in found).startswith("use_lora")


def test_only_what_even_short_records_need_is_refused():
    long = document("LORA", data={"batch_size": 64, "preprocess": {"padding": "longest"}})
    packed = document("LORA", data={"batch_size": 63})

    assert fit(long, [node(40)]).verdict == "may_not_fit"
    assert fit(packed, [node(40)]).verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("batch", "verdict"), [(8, "may_not_fit"), (32, "may_not_fit"), (64, "does_not_fit"), (7, "does_not_fit")]
)
def test_packed_batch_that_fits_after_halvings_is_not_refused(batch: int, verdict: str):
    packing = {"packing": "true", "gradient_checkpointing": "false"}
    data = {"batch_size": batch, "max_seq_length": 4096, "preprocess": {}}

    assert fit(document("LORA", hyperparameters=packing, data=data), [node(80, "h100")]).verdict == verdict


def test_a_fifth_too_much_is_not_refused():
    job = document("SFT", hyperparameters={"gradient_checkpointing": "true"})  # about 61 GB

    assert [fit(job, [node(size)]).verdict for size in (80, 56, 50, 48, 40)] == [
        *("fits", "may_not_fit", "may_not_fit", "does_not_fit", "does_not_fit")
    ]


MIXED = [node(24, "a10", name="small"), node(80, "h100", count=1, name="large"), node(24, "a10", name="other")]


def test_devices_that_the_job_could_get_are_listed_once_the_smallest_first():
    one, two, none = (
        devices_within_reach(asked, MIXED) for asked in (request(), request(2), request(gpu_memory_min_mb=90 * 1024))
    )

    assert [(each.type, each.bytes) for each in one] == [("a10", 24 * _GB), ("h100", 80 * _GB)]
    assert [each.type for each in two] == ["a10"]
    assert none == []


def test_job_that_fits_several_kinds_of_device_names_them_all():
    found = fit(document("QLORA"), MIXED)

    assert (found.verdict, found.too_small) == ("fits", [])
    assert found.message.endswith("GB on the device; a10 has 24, h100 80")


def test_job_that_fits_only_some_of_the_devices_says_how_to_keep_it_from_the_others():
    found = fit(document("SFT", hyperparameters={"gradient_checkpointing": "true"}), MIXED)
    least_mb = -(-found.estimate.total_bytes // 2**20)

    assert (found.verdict, [each.type for each in found.too_small]) == ("fits", ["a10"])
    assert found.message.endswith(
        "; h100 has 80, but it may be placed where a10 has 24: resource_config.gpu_memory_min_mb "
        f"{least_mb} prevents that"
    )
    assert [each.type for each in devices_within_reach(request(gpu_memory_min_mb=least_mb), MIXED)] == ["h100"]


def test_share_of_a_device_has_its_share_of_memory():
    (found,) = devices_within_reach(request(gpu_share=25), [node(80)])

    assert found.bytes == 20 * _GB


@pytest.mark.parametrize("nodes", [[], [node(0)], [node(80), replace(node(0), name="unknown")]])
def test_unknown_memory_refuses_nothing(nodes: list[NodeCapacity]):
    found = fit(document("SFT"), nodes)

    assert found.verdict == "unknown"
    assert found.message.startswith("needs about ")


def test_cpu_slots_show_an_estimate_and_refuse_nothing():
    slots = NodeCapacity(name="n1", devices=(Device(index=0, type="cpu", memory_mb=1),), free=frozenset({0}), ram_mb=1)
    found = fit_of(document("SFT", device_type="cpu"), LLAMA_8B, Request(device_kind="cpu"), [slots])

    assert (found.verdict, found.device) == ("unknown", None)
    assert found.estimate.total_bytes > 30 * _GB


def test_nothing_fits_a_tiny_device():
    found = fit(document("SFT"), [node(2)])

    assert (found.verdict, found.ways_out) == ("does_not_fit", [])
    assert found.message.endswith("take devices with more memory, or a smaller model")


def _with(job: JobDocument, fields: Any) -> JobDocument:
    values = job.to_json()
    for path, value in fields.items():
        *sections, name = path.split(".")
        at = values
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value
    return JobDocument.from_json(values)
