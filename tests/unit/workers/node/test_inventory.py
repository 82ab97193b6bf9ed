"""What a node says of its machine, and what node.toml may say instead."""

import sys
from types import SimpleNamespace

import pynvml
import pytest

from app.domain.scheduling.resources import gpu_of
from workers.node.inventory import cpu_slots, find_gpus, found_capabilities, take_inventory, usable_cores
from workers.node.node_config import NodeConfig, NodeConfigError, read_node_config
from workers.sandbox.sandbox import PROCESS

FULL = """
labels = ["rack-7"]
capabilities = ["bf16"]
[jobs]
max_concurrent = 3
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

    assert (read.labels, read.capabilities, read.jobs) == (("rack-7",), ("bf16",), {"max_concurrent": 3})


def test_interval_of_the_heartbeat_is_in_milliseconds(tmp_path):
    assert config(tmp_path, "[jobs]\nheartbeat_interval_ms = 5000").limits.heartbeat_seconds == 5.0


@pytest.mark.parametrize(("installed", "offers"), [(True, ("mpi",)), (False, ())])
def test_node_offers_mpi_where_mpirun_is_found(tmp_path, monkeypatch, installed, offers):
    if installed:
        (tmp_path / "mpirun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert [word for word in found_capabilities(PROCESS, tmp_path) if word == "mpi"] == [*offers]


@pytest.fixture
def nothing_of_extras_imported():
    """Neither before nor after the test, where something may have been; what was is there again then."""
    before = _extras_forgotten()
    yield
    _extras_forgotten()
    sys.modules.update(before)


def _extras_forgotten():
    return {
        name: sys.modules.pop(name)
        for name in [*sys.modules]
        if name.partition(".")[0] in ("deepspeed", "gguf", "llguidance", "lm_eval", "megatron", "wandb")
    }


@pytest.mark.parametrize(
    ("installed", "offers"),
    [
        (("deepspeed", "megatron/core", "gguf", "llguidance"), ["deepspeed", "megatron", "export", "inference"]),
        (("deepspeed", "megatron"), ["deepspeed"]),
        ((), []),
    ],
)
@pytest.mark.usefixtures("nothing_of_extras_imported")
def test_node_offers_the_libraries_that_are_installed_apart(tmp_path, monkeypatch, installed, offers):
    for name in installed:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("PATH", "")

    assert [name for name in found_capabilities(PROCESS, tmp_path) if not name.startswith("limits")] == offers


@pytest.mark.parametrize(("sandbox", "offers"), [("auto", True), (PROCESS, False)])
def test_node_offers_the_client_of_wandb_only_where_a_sandbox_holds_it(tmp_path, monkeypatch, sandbox, offers):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert ("wandb" in found_capabilities(sandbox, tmp_path)) is offers


def test_no_file_means_all_is_detected():
    assert read_node_config(None) == NodeConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("label = ['x']", "label: unknown"),
        ("labels = 'x'", "labels: must be a list"),
        ("labels = [1]", "labels: must be a list"),
        ("labels = ['rack-1', 'zone=eu']", "labels: 'zone=eu' must be 1 to 128 of letters"),
        ("capabilities = ['a b']", "capabilities: 'a b' must be 1 to 128 of letters"),
        ("jobs = 3", "jobs: must be a table"),
        ("[jobs]\nmax_running = 3", "jobs.max_running: unknown; known: max_concurrent, auto_accept"),
        ("[jobs]\nmax_concurrent = 0", "jobs.max_concurrent: must be a whole number from 1"),
        ("[jobs]\nheartbeat_interval_ms = 60001", "heartbeat_interval_ms: must be a whole number from 100 to 60000"),
        ("devices = 3", "devices: must be an array"),
        ("[[devices]]\ncount = 2", "devices[0].type"),
        ("[[devices]]\ntype = 'a'\ncount = 0", "devices[0].count"),
        ("[[devices]]\ntype = 'a'\nmemory_mb = -1", "devices[0].memory_mb"),
        ("[[devices]]\ntype = 'a'\nmemory = 1", "devices[0].memory: unknown"),
        ("[[devices]]\ntype = 'a'\nmig_profile = '9g.10gb'", "devices[0].mig_profile: must be a MIG profile"),
        ("[[devices]]\ntype = 'a'\nmig_profile = 1", "devices[0].mig_profile: must be a MIG profile"),
        ("[[devices]]\ntype = 'a'\nlink_group = -1", "devices[0].link_group: must be a whole number from 0 to 4095"),
        ("[[devices]]\ntype = 'a'\nlink_group = 0\nmig_profile = '1g.10gb'", "link_group: slices of a GPU have none"),
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
    """As much of pynvml as an inventory asks; ``broken`` names a function and a GPU for which it fails.

    ``split``: GPU → the profiles of its slices, None where one could still be made. The handle of a slice is a pair.
    ``links``: GPU → where each of its links goes: to this GPU or kind of other device, None where it is not active.
    """

    class NVMLError(Exception):
        pass

    class NVMLError_InvalidArgument(NVMLError):  # noqa: N801
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801
        pass

    NVML_DEVICE_MIG_ENABLE = NVML_FEATURE_ENABLED = 1
    NVML_NVLINK_MAX_LINKS = 6
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2

    def __init__(self, broken=("", -1), split=None, links=None):
        self.broken = broken
        self.split = split or {}
        self.links = links or {}
        self.open = False

    def nvmlDeviceGetMigMode(self, index):  # noqa: N802
        if not self.split:
            raise self.NVMLError("Not Supported")
        return [int(index in self.split), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, index):  # noqa: N802
        return self._answer("slices", index, len(self.split[index]))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, index, number):  # noqa: N802
        if self.split[index][number] is None:
            raise self.NVMLError("Not Found")
        return (index, number)

    def nvmlDeviceGetNvLinkState(self, index, link):  # noqa: N802
        if not self.links:
            raise self.NVMLError_NotSupported
        if link >= len(self.links[index]):
            raise self.NVMLError_InvalidArgument
        return self._answer("state of links", index, int(self.links[index][link] is not None))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, index, link):  # noqa: N802
        kinds = {"switch": self.NVML_NVLINK_DEVICE_TYPE_SWITCH, "npu": 1}
        return self._answer("remote type", index, kinds.get(self.links[index][link], self.NVML_NVLINK_DEVICE_TYPE_GPU))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, index, link):  # noqa: N802
        return self._answer("remote address", index, self._address(self.links[index][link]))

    def nvmlDeviceGetPciInfo(self, index):  # noqa: N802
        return self._answer("address", index, self._address(index))

    def _address(self, index):
        return SimpleNamespace(domain=0, bus=7 + index, device=0)

    def nvmlInit(self):  # noqa: N802 – the library's names
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self._answer("count", -1, 3)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self._answer("handle", index, index)

    def nvmlDeviceGetName(self, index):  # noqa: N802
        if isinstance(index, tuple):
            return self._answer("name", index, f"NVIDIA H200 MIG {self.split[index[0]][index[1]]}")
        return self._answer("name", index, "NVIDIA H200")

    def nvmlDeviceGetUUID(self, index):  # noqa: N802
        if isinstance(index, tuple):
            return self._answer("uuid", index, f"MIG-{index[0]}{index[1]}")
        return self._answer("uuid", index, UUIDS[index])

    def nvmlDeviceGetMemoryInfo(self, index):  # noqa: N802
        size = 18 if isinstance(index, tuple) else 143
        return self._answer("memory", index, SimpleNamespace(total=size << 30))

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


SPLIT = {1: ["1g.18gb", None, "1g.18gb+me"], 2: []}


def test_slices_of_a_split_gpu_are_devices_of_their_own_in_its_place():
    offered = find_gpus(FakeDriver(split=SPLIT), None)

    assert [(d.index, d.type, d.memory_mb, d.uuid) for d in offered] == [
        (0, "h200", 143 << 10, ""),
        (2000, "h200-mig-1g.18gb", 18 << 10, "MIG-10"),
        (2002, "h200-mig-1g.18gb+me", 18 << 10, "MIG-12"),
    ]
    assert [(d.chip, d.mig_profile) for d in offered] == [("h200", ""), ("h200", "1g.18gb"), ("h200", "1g.18gb+me")]
    assert [gpu_of(d.index) for d in offered] == [0, 1, 1]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("1", [2000, 2002]), ("MIG-12,0", [0, 2002]), (UUIDS[1], [2000, 2002]), ("MIG-1", []), ("2", [])],
)
def test_only_slices_that_cuda_would_see_are_offered(visible, indices):
    assert [d.index for d in find_gpus(FakeDriver(split=SPLIT), visible)] == indices


@pytest.mark.parametrize("what", ["uuid", "name", "memory"])
def test_broken_slice_is_left_out(what):
    assert [d.index for d in find_gpus(FakeDriver((what, (1, 0)), split=SPLIT), None)] == [0, 2002]


def test_slice_whose_name_has_no_profile_is_left_out():
    # Compute instances that share a slice.
    assert [d.index for d in find_gpus(FakeDriver(split={1: ["1c.3g.71gb", "3g.71gb"]}), None)] == [0, 2001, 2]


CHAIN = {0: [1, 1], 1: [0, 0, 2, None], 2: [1]}
SWITCHED = {0: ["switch"] * 6, 1: [None] * 6, 2: ["switch"] * 6}


@pytest.mark.parametrize(
    ("links", "groups"),
    [
        (None, [None, None, None]),
        ({0: [], 1: [2], 2: [1]}, [None, 0, 0]),
        (CHAIN, [0, 0, 0]),
        (SWITCHED, [0, None, 0]),
        ({0: ["switch"], 1: [None], 2: [None]}, [None, None, None]),
        ({0: ["npu"], 1: ["npu"], 2: []}, [None, None, None]),
    ],
)
def test_gpus_that_nvlink_connects_are_a_group(links, groups):
    assert [gpu.link_group for gpu in find_gpus(FakeDriver(links=links), "0,1,2")] == groups


@pytest.mark.parametrize("what", ["state of links", "remote type", "remote address", "address"])
def test_gpu_that_does_not_tell_its_links_is_offered_without(what):
    assert [gpu.link_group for gpu in find_gpus(FakeDriver((what, 0), links=CHAIN), "0,1,2")] == [None, 0, 0]


def test_gpus_are_not_connected_by_one_that_is_not_ours():
    assert [gpu.link_group for gpu in find_gpus(FakeDriver(links=CHAIN), "0,2")] == [None, None]


def test_slices_are_in_no_group():
    driver = FakeDriver(split={1: ["1g.18gb"]}, links={gpu: ["switch"] for gpu in range(3)})

    assert [(d.index, d.link_group) for d in find_gpus(driver, "0,1,2")] == [(0, 0), (2000, None), (2, 0)]


def test_fake_driver_asks_as_the_library_does():
    names = [name for name in vars(FakeDriver) if name.startswith(("nvml", "NVML"))]

    assert [name for name in names if not hasattr(pynvml, name)] == []


def test_declared_groups_are_those_of_all_their_devices(tmp_path):
    text = """
        [[devices]]
        type = "a100"
        count = 2
        link_group = 3
        [[devices]]
        type = "a100"
    """

    assert [d.link_group for d in take_inventory(config(tmp_path, text), tmp_path).devices] == [3, 3, None]


def test_declared_slices_are_simulated(tmp_path):
    text = '[[devices]]\ntype = "H100"\nmig_profile = "1g.10gb"\nmemory_mb = 9728\ncount = 2\n'

    devices = take_inventory(config(tmp_path, text), tmp_path).devices

    assert [(d.index, d.type, d.memory_mb, d.simulated) for d in devices] == [
        (0, "h100-mig-1g.10gb", 9728, True),
        (1, "h100-mig-1g.10gb", 9728, True),
    ]
