"""What a node says of its machine, and what node.toml may say instead."""

from types import SimpleNamespace

import pytest

from workers.inventory import cpu_slots, find_gpus, take_inventory, usable_cores
from workers.node_config import NodeConfig, NodeConfigError, read_node_config

FULL = """
labels = ["rack-7"]
capabilities = ["bf16"]
[jobs]
max_running = 3
[[devices]]
type = "NVIDIA H200"
memory_mb = 1000
count = 2
[[devices]]
type = "A100-80GB"
"""


def config(tmp_path, text):
    path = tmp_path / "node.toml"
    path.write_text(text)
    return read_node_config(path)


def test_machine_without_gpu_offers_cpu_slots(tmp_path):
    inventory = take_inventory(NodeConfig(), tmp_path)

    assert {device.type for device in inventory.devices} == {"cpu"}
    assert len(inventory.devices) == max(2, usable_cores())
    assert inventory.ram_mb > 0
    assert inventory.storage_mb > 0


def test_there_are_at_least_two_cpu_slots():
    assert len(cpu_slots()) >= 2


def test_declared_devices_replace_detection(tmp_path):
    inventory = take_inventory(config(tmp_path, FULL), tmp_path)

    assert [(d.index, d.type, d.memory_mb, d.simulated) for d in inventory.devices] == [
        (0, "h200", 1000, True),
        (1, "h200", 1000, True),
        (2, "a100", 81920, True),
    ]


def test_labels_capabilities_and_limits_are_read(tmp_path):
    read = config(tmp_path, FULL)

    assert (read.labels, read.capabilities, read.jobs) == (("rack-7",), ("bf16",), {"max_running": 3})


def test_no_file_means_all_is_detected():
    assert read_node_config(None) == NodeConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("label = ['x']", "label: unknown"),
        ("labels = 'x'", "labels: must be a list"),
        ("labels = [1]", "labels: must be a list"),
        ("jobs = 3", "jobs: must be a table"),
        ("devices = 3", "devices: must be an array"),
        ("[[devices]]\ncount = 2", "devices[0].type"),
        ("[[devices]]\ntype = 'a'\ncount = 0", "devices[0].count"),
        ("[[devices]]\ntype = 'a'\nmemory_mb = -1", "devices[0].memory_mb"),
        ("[[devices]]\ntype = 'a'\nmemory = 1", "devices[0].memory: unknown"),
        ("not toml", "node.toml"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(tmp_path, text, problem):
    with pytest.raises(NodeConfigError) as refused:
        config(tmp_path, text)

    assert problem in str(refused.value)


def test_all_problems_are_named_at_once(tmp_path):
    with pytest.raises(NodeConfigError) as refused:
        config(tmp_path, "labels = 1\ncapabilities = 2\n[[devices]]\ncount = 0\n")

    assert len(refused.value.problems) == 4


def test_missing_file_is_named(tmp_path):
    with pytest.raises(NodeConfigError, match=r"gone\.toml"):
        read_node_config(tmp_path / "gone.toml")


UUIDS = ("GPU-11111111-0000", "GPU-22222222-0000", "GPU-22223333-0000")


class FakeDriver:
    """As much of pynvml as an inventory asks; ``broken`` names a function and a GPU for which it fails."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken=("", -1)):
        self.broken = broken
        self.open = False

    def nvmlInit(self):  # noqa: N802 – the library's names
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self._answer("count", -1, 3)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self._answer("handle", index, index)

    def nvmlDeviceGetName(self, index):  # noqa: N802
        return self._answer("name", index, "NVIDIA H200")

    def nvmlDeviceGetUUID(self, index):  # noqa: N802
        return self._answer("uuid", index, UUIDS[index])

    def nvmlDeviceGetMemoryInfo(self, index):  # noqa: N802
        return self._answer("memory", index, SimpleNamespace(total=143 << 30))

    def _answer(self, what, index, answer):
        if self.broken == (what, index):
            raise self.NVMLError(f"no {what}")
        return answer


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("0,1,2", [0, 1, 2]),
        ("2, 0", [0, 2]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("7", []),
        ("0,NoDevFiles,1", [0]),
        (UUIDS[1], [1]),
        (f"{UUIDS[2]},{UUIDS[0]}", [0, 2]),
        ("GPU-11", [0]),
        ("GPU-2222", []),  # of two GPUs
        ("MIG-11111111-0000", []),
    ],
)
def test_only_gpus_that_cuda_would_see_are_offered(visible, indices):
    assert [gpu.index for gpu in find_gpus(FakeDriver(), visible)] == indices


def test_all_gpus_are_offered_when_nothing_is_said():
    driver = FakeDriver()

    gpus = find_gpus(driver, None)

    assert [(gpu.index, gpu.type, gpu.memory_mb) for gpu in gpus] == [(n, "h200", 143 << 10) for n in range(3)]
    assert not driver.open


@pytest.mark.parametrize("what", ["handle", "name", "uuid"])
def test_broken_gpu_is_left_out(what):
    assert [gpu.index for gpu in find_gpus(FakeDriver((what, 1)), "0,1,2")] == [0]
    assert [gpu.index for gpu in find_gpus(FakeDriver((what, 1)))] == [0, 2]


def test_gpu_that_does_not_tell_its_memory_is_offered_all_the_same():
    assert [gpu.memory_mb for gpu in find_gpus(FakeDriver(("memory", 1)))] == [143 << 10, 0, 143 << 10]


def test_driver_that_can_not_count_offers_nothing():
    assert find_gpus(FakeDriver(("count", -1))) == ()
