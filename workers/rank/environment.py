"""The command and the environment variables of a rank. Standard library only."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from trainyard.protocol.run_spec import RunSpec
from workers.rank.variable_expansion import expanded, expanded_in_turn

TERM = "xterm-256color"  # of ranks whose output is a terminal
KEPT_BYTES = str(1 << 30)
RANK_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    # OpenMP's threads wait for each other by spinning, which slows down other jobs on the same cores: steps take 4
    # to 10 times as long on 2 cores. After this many rounds they sleep instead.
    "GOMP_SPINCOUNT": "1000",
}
# Libraries read it when they are imported, before a forked rank is in its sandbox, where /tmp is the attempt's own.
FORKED_HF_HOME = "/tmp/huggingface"  # noqa: S108
# On the CPU, keep freed memory in the process: faulting it in again takes 5 to 8 % of a step. For glibc; other
# libraries ignore it.
CPU_MEMORY_SETTINGS = {"MALLOC_TRIM_THRESHOLD_": KEPT_BYTES, "MALLOC_MMAP_THRESHOLD_": KEPT_BYTES}


SCRIPT_INTERPRETER = "python3"  # of an image
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of an image that sets none, as Docker's


def own_python(spec: RunSpec) -> list[str]:
    """The command line of the interpreter that runs our own code beside the ranks."""
    return [sys.executable] if spec.image is None else list(spec.image.python)


def session_server_environment() -> dict[str, str]:
    """That of the agent, without the job's variables; by the mark none of its processes is taken for a rank."""
    return {**os.environ, "TRAINYARD_SESSION": "server"}


def rank_command(spec: RunSpec, spec_path: Path, environment: Mapping[str, str]) -> list[str]:
    """The command of a rank: the user's command or script, or a built-in trainer."""
    if spec.framework == "CUSTOM":
        if spec.command:
            return [expanded(word, environment) for word in spec.command]
        python = script_interpreter(spec)
        return [python, spec.script, *(expanded(word, environment) for word in spec.arguments)]
    return [sys.executable, "-m", "workers.trainers.main", "--spec", str(spec_path)]


def script_interpreter(spec: RunSpec) -> str:
    """The Python of a CUSTOM job's scripts."""
    if spec.packages_path:
        return str(Path(spec.packages_path, "bin", "python"))
    return sys.executable if spec.image is None else SCRIPT_INTERPRETER


def rank_environment(
    spec: RunSpec,
    spec_path: Path,
    local_rank: int,
    place: tuple[str, int],
    job_environment: Mapping[str, str],
    role: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The environment of one rank, as torchrun sets it; variables that the platform needs override the job's.

    ``place``: address and port where rank 0 listens. ``role``: variables of a rank that has one.
    """
    ours = {**_ours(spec, spec_path, local_rank, place), **role}
    if spec.framework == "CUSTOM":
        job_environment = expanded_in_turn(job_environment, {**os.environ, **ours})
    environment = {
        **_network_settings(spec),
        **_image_settings(spec),
        **os.environ,
        **RANK_SETTINGS,
        **({"TERM": TERM} if spec.terminal else {}),
        **_memory_settings(spec),
        **job_environment,
        **ours,
    }
    # The script imports its siblings, even one called config.py; our trainers must not.
    environment.pop("PYTHONSAFEPATH", None)
    if spec.image is not None:
        paths = (job_environment.get("PYTHONPATH", ""), spec.image.environment.get("PYTHONPATH", ""), spec.image.hooks)
        environment["PYTHONPATH"] = _joined(paths)
        return environment
    if spec.packages_path:
        return _with_packages(spec.packages_path, environment, job_environment.get("PYTHONPATH", ""))
    if spec.framework != "CUSTOM":
        environment["PYTHONSAFEPATH"] = "1"
    elif "PATH" not in job_environment:
        # `python` in a command is the interpreter with the platform's packages.
        environment["PATH"] = _joined([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment["PYTHONPATH"] = _joined([job_environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")])
    return environment


def _with_packages(path: str, environment: Mapping[str, str], modules: str) -> dict[str, str]:
    """As an activated virtual environment. It finds our hooks and the node's packages by itself, behind its own."""
    bin_first = _joined([str(Path(path, "bin")), environment.get("PATH", os.defpath)])
    found = {**environment, "VIRTUAL_ENV": path, "PATH": bin_first, "PYTHONPATH": modules}
    return {name: value for name, value in found.items() if name != "PYTHONPATH" or value}


def _ours(spec: RunSpec, spec_path: Path, local_rank: int, place: tuple[str, int]) -> dict[str, str]:
    return {
        **_place_among_all(spec, local_rank, place),
        "OMP_NUM_THREADS": str(spec.threads_per_rank),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of NVML, whose indices the devices have
        "CUDA_VISIBLE_DEVICES": _visible_devices(spec),
        **_attempt_of(spec, spec_path),
        **_inputs_of(spec),
    }


def _joined(paths: Sequence[str]) -> str:
    return ":".join(path for path in paths if path)


def _attempt_of(spec: RunSpec, spec_path: Path) -> dict[str, str]:
    """Variables that the hooks read, and that identify processes of the attempt."""
    return {
        "TRAINYARD_GPU_MEMORY_FRACTION": str(spec.gpu_memory_fraction),
        "TRAINYARD_JOB_ID": spec.job_id,
        "TRAINYARD_ATTEMPT": str(spec.attempt),
        **({"TRAINYARD_NODE": spec.node} if spec.node else {}),
        "TRAINYARD_RUN_DIR": str(spec.run_dir),
        "TRAINYARD_OUTPUT_DIR": str(spec.run_dir / "output"),
        "TRAINYARD_SPEC": str(spec_path),
        "TRAINYARD_CHANNEL": spec.channel,
    }


def _inputs_of(spec: RunSpec) -> dict[str, str]:
    """Paths of the job's model and data, and the steps at which it halts, for whatever a script starts."""
    if spec.framework != "CUSTOM":
        return {}
    model = {"TRAINYARD_MODEL": spec.model_path} if spec.model_path else {}
    halts = ",".join(str(step) for step in spec.halts if step > spec.resume_step)
    model |= {"TRAINYARD_HALT_AT": halts} if halts else {}
    return model | {f"TRAINYARD_DATA_{number}": path for number, path in enumerate(spec.data_paths)}


def _place_among_all(spec: RunSpec, local_rank: int, place: tuple[str, int]) -> dict[str, str]:
    numbers = {
        "RANK": spec.first_rank + local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": spec.world_size,
        "LOCAL_WORLD_SIZE": spec.local_ranks,
        "NODE_RANK": spec.node_rank,
        "NNODES": spec.nodes,
    }
    return {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": place[0],
        "MASTER_PORT": str(place[1]),
    }


def _network_settings(spec: RunSpec) -> dict[str, str]:
    """Without interfaces gloo takes the address of the host's name, on many machines one of the loopback."""
    interface = spec.gang.interface if spec.gang is not None else ""
    interfaces = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    return {**interfaces, **_proxies(spec.proxy_port)}


def _proxies(port: int) -> dict[str, str]:
    """In both spellings: curl ignores HTTP_PROXY, other programs http_proxy."""
    if not port:
        return {}
    url = f"http://127.0.0.1:{port}"
    named = {"http_proxy": url, "https_proxy": url, "no_proxy": "localhost,127.0.0.1,::1"}
    return named | {name.upper(): value for name, value in named.items()}


def _image_settings(spec: RunSpec) -> dict[str, str]:
    return {} if spec.image is None else {"PATH": DEFAULT_PATH, **spec.image.environment}


def _memory_settings(spec: RunSpec) -> dict[str, str]:
    """Not with a GPU, where a model passes through this memory once."""
    return {} if spec.device_type == "cuda" or spec.framework == "CUSTOM" else CPU_MEMORY_SETTINGS


def _visible_devices(spec: RunSpec) -> str:
    """The job's GPUs; each rank picks its own by LOCAL_RANK. Empty on the CPU.

    By UUID where known: CUDA renumbers GPUs where only some can be opened, as in the sandbox.
    """
    gpus = spec.device_uuids or spec.device_indices
    return ",".join(map(str, gpus)) if spec.device_type == "cuda" else ""
