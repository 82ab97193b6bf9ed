"""What the folders and imports of the product must keep beyond the contracts in `pyproject.toml`."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOPS = ("app", "config", "simulation", "tasks", "trainyard", "workers")
MOST_MODULES = 25
# One module for each trainer or migration.
GROWING = {"workers/trainers", "app/migrations/versions"}
# Packages whose parts still import each other, module by module without a cycle. No new ones.
TANGLED = {"app.services.sweeps", "workers.trainers"}

Graph = dict[str, set[str]]


@cache
def _modules() -> dict[str, Path]:
    paths = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def _imports() -> Graph:
    """What each module imports of ours, anywhere in it: at its top, in functions, for types alone."""
    return {name: _imported(path) - {name} for name, path in _modules().items()}


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (whole & _modules().keys()) or {node.module}
    return names & _modules().keys()


def _cycle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _parts() -> dict[str, Graph]:
    """By package, which of its parts imports which other one."""
    graphs: dict[str, Graph] = defaultdict(lambda: defaultdict(set))
    for name, imported in _imports().items():
        for other in imported:
            left, right = name.split("."), other.split(".")
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))))
            if 0 < shared < min(len(left), len(right)):
                graphs[".".join(left[:shared])][left[shared]].add(right[shared])
    return graphs


def test_no_module_is_imported_by_what_it_imports():
    assert not _cycle(_imports())


def test_parts_of_a_package_import_each_other_one_way():
    tangled = {package: cycle for package, graph in _parts().items() if (cycle := _cycle(graph))}
    assert tangled.keys() == TANGLED, tangled


def test_a_folder_can_be_looked_over():
    folders = {path.parent for path in _modules().values()}
    sizes = {
        str(folder.relative_to(ROOT)): len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in folders
    }
    assert not {name: size for name, size in sizes.items() if size > MOST_MODULES and name not in GROWING}


def test_the_formatter_decides_everywhere():
    paths = [path for top in (*TOPS, "benchmarks", "scripts", "tests") for path in (ROOT / top).rglob("*.py")]
    mark = "fmt: " + "skip"
    assert not [str(path.relative_to(ROOT)) for path in paths if mark in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [({"a": {"b"}, "b": {"c"}, "c": {"b"}}, {"b", "c"}), ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, set())],
)
def test_a_cycle_would_be_found(graph, cycle):
    assert set(_cycle(graph)) == cycle
