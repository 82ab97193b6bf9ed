"""Rules about the code itself that neither the linter nor the import contracts can say."""

import ast
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("app", "config", "simulation", "tasks", "trainyard", "workers")
FILE_LINES = 400
FUNCTION_LINES = 40
TRAINER_FUNCTION_LINES = 60
# Names that do not say what a file holds.
WITH_STATUS_OF_THEIR_OWN = {"file", "upload"}  # variables with rows that are no jobs
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
HEAVY = {
    "accelerate",
    "datasets",
    "deepspeed",
    "numpy",
    "peft",
    "safetensors",
    "tensorboard",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
}
# Fields of a job document that are sections themselves.
SECTIONS = {
    "base_model",
    "checkpoint",
    "data_config",
    "distributed",
    "evaluation",
    "framework",
    "on_divergence",
    "output_config",
    "preprocess",
    "resource_config",
    "sampling",
    "scheduling_config",
    "sources",
    "training_config",
}
SECTIONS_BY_KEY = {
    "app/domain/sweeps/documents.py": "writes documents of trials, whose sections a sweep may leave out",
    "app/services/jobs/details.py": "answers with the stored JSON, of which lists have many",
    "app/services/recipes.py": "reads files that people copy, before a schema does",
    "workers/trainers/inspection_data.py": "the sources are those of its report",
}
# Who touches the environment beside config/, and why: none of them reads a setting.
ENVIRONMENT = {
    "tasks/flower.py": "gives Flower its password, which must stand in no command line",
    "app/cli/local/forked_process.py": "gives a fork the environment of its command",
    "app/cli/local/demo_processes.py": "hands it on to the processes it starts",
    "app/cli/local/local_platform.py": "hands it on to the processes it starts",
    "app/cli/local/processes.py": "becomes one of them",
    "app/cli/local/sandbox.py": "hands the harmless part of it on to apt-get",
    "app/host/bubblewrap.py": "hands PATH on to bubblewrap",
    "app/tensorboard/boards.py": "hands the harmless part of it on to TensorBoard",
    "app/cli/local/up.py": "its options override the environment for all of them",
    "workers/sandbox/launcher.py": "hands a part of it on to the sandbox",
    "workers/rank/environment.py": "makes the ranks' environment from its own",
    "workers/trainers/checkpoint_shards.py": "the launcher says which node a rank is on",
    "workers/trainers/deepspeed/configuration.py": "tells DeepSpeed which kind of device to use",
    "workers/trainers/deepspeed/whole_weights.py": "the same: it has only files to read",
    "workers/rank/mpi.py": "hands it on to mpirun, with the settings of this node",
    "workers/rank/mpi_part.py": "is started by mpirun's parent, which names its plan so",
    "workers/rank/mpi_rank.py": "runs under mpirun, whose variables say which rank it is",
    "workers/rank/mpi_remote.py": "runs under mpirun, whose environment names its plan",
    "workers/process_environment.py": "hands it on to supervisors and preflights",
    "workers/trainers/fork_server.py": "becomes an agent or a rank with the environment of its request",
    "workers/supervisor/fork_server.py": "becomes a supervisor with the environment of its request",
    "workers/rank/run_context.py": "runs in a rank, whose variables are its interface",
    "workers/trainers/distributed.py": "the same, with torchrun's variables",
    "workers/trainers/hf_trainer/methods/completions.py": "the same, with the places of rollouts",
    "workers/trainers/rollouts/main.py": "the same, with the place of a rollout",
    "workers/trainers/graders/python_graders.py": "hands the rank's environment on to its python graders",
    "workers/trainers/hidden_packages.py": "CC names the compiler for Triton",
    "workers/trainers/data/tokenizer_threads.py": "its variables are the only switch that the tokenizers library has",
    "workers/prepare/packages/confined_uv.py": "puts the gate into what it hands on to uv",
    "workers/tracking/confined.py": "puts the gate where W&B's client finds its proxy",
    "workers/prepare/packages/uv_process.py": "hands a part of it on to uv",
    "workers/images/image_tools.py": "hands a part of it on to the programs that fetch images",
    "workers/fetching/child/client.py": "hands a part of it on to the child that fetches",
    "workers/fetching/filesystems.py": "closes botocore's ways to other credentials than the settings'",
    "workers/fetching/hub.py": "HF_ENDPOINT is huggingface_hub's",
    "workers/node/inventory.py": "CUDA_VISIBLE_DEVICES is CUDA's",
}


@cache
def _sources(*tops: str) -> list[Path]:
    # Migrations are lists of tables, written once by Alembic and never edited.
    paths = sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))
    return [path for path in paths if not path.is_relative_to(ROOT / "app/migrations/versions")]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


OURS = _sources(*PACKAGES)
EVERYTHING = [*OURS, *_sources("benchmarks", "examples", "scripts", "tests")]


def test_there_is_code_to_look_at():
    assert {_name(path).split("/")[0] for path in OURS} == set(PACKAGES)


def test_no_file_holds_more_than_one_can_read():
    lengths = {_name(path): len(path.read_text().splitlines()) for path in EVERYTHING}

    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_longer_than_a_screen():
    too_long = {
        f"{_name(path)}:{line} {name}": length
        for path in OURS
        for line, name, length in _content(path).functions
        if length > _function_limit(path)
    }

    assert too_long == {}


def test_every_file_name_says_what_the_file_holds():
    assert [_name(path) for path in EVERYTHING if path.stem in EMPTY_NAMES or path.stem.startswith("base_")] == []


def test_only_the_lifecycle_writes_a_jobs_status():
    writers = {
        f"{_name(path)}: {statement}"
        for path in _sources("app", "tasks", "workers")
        if _name(path) != "app/services/lifecycle/transitions.py"
        for statement in _content(path).writes_of_status
    }

    assert writers == set()


def test_only_config_reads_the_environment():
    # What users import, trainyard/, runs inside their process: the ranks' variables are its interface.
    readers = {_name(path) for path in _sources("app", "tasks", "workers") if _content(path).reads_environment}

    assert readers - set(ENVIRONMENT) == set()


@pytest.mark.parametrize(
    ("package", "ours"),
    [("trainyard", {"trainyard"}), ("app/domain", {"app.domain"}), ("simulation", {"app.domain", "simulation"})],
)
def test_imports_only_the_standard_library(package, ours):
    allowed = set(sys.stdlib_module_names) | ours

    foreign = {
        f"{_name(path)}: {module}"
        for path in _sources(package)
        for module in _content(path).imports
        if not {module.split(".")[0], ".".join(module.split(".")[:2])} & allowed
    }

    assert foreign == set()


def test_only_trainers_import_what_trains():
    importers = {_name(path) for path in OURS if HEAVY & {module.split(".")[0] for module in _content(path).imports}}

    # CMA-ES computes with arrays; it is a process of its own as well.
    assert {name for name in importers if not name.startswith("workers/trainers/")} == {"app/search/evolution.py"}


def test_processes_start_without_what_trains():
    # One process imports what all of them do, those that import least first: it has no less than each of them.
    starts = [
        "trainyard.hooks",
        "workers.supervisor.main, workers.rank.agent",
        "tasks.node, workers.node.worker_step",
        "tasks.coordinator",
        "app.factory, app.cli.main",
    ]
    prints = f"print(*sorted(set({sorted(HEAVY)}) & set(sys.modules)))"
    program = "import sys\n" + "".join(f"import {modules}\n{prints}\n" for modules in starts)

    environment = {**os.environ, "TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0"}
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )

    assert dict(zip(starts, said.stdout.split("\n"), strict=False)) == dict.fromkeys(starts, "")


def test_sections_of_a_job_document_are_read_by_attribute() -> None:
    """A document is typed from its schema on: only what writes or stores JSON knows sections by their keys."""
    found = [
        f"{_name(path)}:{line}"
        for path in _sources("app/domain", "app/services", "workers", "tasks")
        if _name(path) not in SECTIONS_BY_KEY
        for line in _content(path).sections_by_key
    ]

    assert found == []


def _key_of(node: ast.expr) -> object:
    """The constant key of ``x["key"]`` and ``x.get("key")``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    return None


def _function_limit(path: Path) -> int:
    return TRAINER_FUNCTION_LINES if _name(path).startswith("workers/trainers/") else FUNCTION_LINES


@dataclass
class _Content:
    """What the rules ask of a file; ``functions`` are line, name and length."""

    functions: list[tuple[int, str, int]] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    writes_of_status: list[str] = field(default_factory=list)
    sections_by_key: list[int] = field(default_factory=list)
    reads_environment: bool = False


@cache
def _content(path: Path) -> _Content:
    """Each file is parsed once for all rules; trees of a thousand files would be too large to keep."""
    content = _Content()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            content.functions.append((node.lineno, node.name, (node.end_lineno or 0) - node.lineno + 1))
        elif isinstance(node, ast.Import):
            content.imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            content.imports.append(node.module or "")
        elif isinstance(node, ast.expr) and _key_of(node) in SECTIONS:
            content.sections_by_key.append(node.lineno)
        if _sets_status(node):
            content.writes_of_status.append(ast.unparse(node))
        content.reads_environment |= _is_environment(node)
    return content


def _sets_status(node: ast.AST) -> bool:
    """``job.status = …``, or ``.values(status=…)`` of an UPDATE."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(
            isinstance(target, ast.Attribute)
            and target.attr == "status"
            and not (isinstance(target.value, ast.Name) and target.value.id in WITH_STATUS_OF_THEIR_OWN)
            for target in targets
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
        return any(keyword.arg == "status" for keyword in node.keywords)
    return False


def _is_environment(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return node.value.id == "os" and node.attr in {"environ", "environb", "getenv"}
