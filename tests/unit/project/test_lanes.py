"""The lanes of tests/lanes.toml: every test has one, and what runs for a change holds whatever the change may break."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.lanes import ROOT, changed_files, has_test, lanes_of, matches, table

Git = Callable[..., None]


@pytest.fixture(scope="module")
def tests() -> list[str]:
    """Every file of tests."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Every file of the repository."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    paths = [*ROOT.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if path.is_file() and path.suffix != ".pyc")


def test_every_file_of_tests_is_in_a_lane(tests: list[str]) -> None:
    assert [path for path in tests if not has_test(table().lanes, path)] == []


def test_every_pattern_finds_something(files: list[str], tests: list[str]) -> None:
    for name, lane in table().lanes.items():
        for patterns, paths in ((lane.paths, files), (lane.tests, tests)):
            for pattern in patterns:
                assert any(matches(path, [pattern.removeprefix("!")]) for path in paths), f"{name}: {pattern}"


@pytest.mark.parametrize("package", ["app", "config", "simulation", "tasks", "trainyard", "workers"])
def test_every_module_runs_the_tests_of_rules_and_services(files: list[str], package: str) -> None:
    assert [path for path in files if path.startswith(f"{package}/") and "code" not in _lanes(path)] == []


def test_tests_that_read_pages_run_for_a_page(tests: list[str]) -> None:
    reads = re.compile(r"""(?:ROOT|parents\[\d\]|TESTS\.parent)\)? / "(?:docs\b|[\w-]+\.md)""")
    readers = [path for path in tests if reads.search((ROOT / path).read_text(encoding="utf-8"))]

    assert len(readers) > 10
    assert [path for path in readers if not has_test(["docs"], path)] == []


def test_what_trainers_import_runs_the_tests_of_trainers(files: list[str]) -> None:
    imported = _with_imports(path for path in files if re.fullmatch(r"workers/trainers/.*\.py", path))

    assert "workers/rank/run_context.py" in imported
    assert {path for path in imported if "trainers" not in _lanes(path)} == set()


@pytest.mark.parametrize("module", ["app.compat", "app.http"])
def test_what_vocabularies_import_runs_the_tests_of_vocabularies(files: list[str], module: str) -> None:
    start = module.replace(".", "/") + "/"
    imported = _with_imports(path for path in files if path.startswith(start) and path.endswith(".py"))

    of_the_app = {path for path in imported if path.startswith("app/")}
    assert {path for path in of_the_app if "vocabularies" not in _lanes(path)} == set()


@pytest.mark.parametrize("package", ["tasks", "workers"])
def test_what_processes_import_runs_the_tests_of_whole_systems(files: list[str], package: str) -> None:
    starts = (path for path in files if re.fullmatch(rf"{package}/(?!trainers/).*\.py", path))

    assert {path for path in _with_imports(starts) if not {"runtime", "trainers"} & set(_lanes(path))} == set()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["docs/api.md", "README.md"], ["docs"]),
        (["app/compat/ome/to_native.py"], ["code", "vocabularies"]),
        (["simulation/trace.py"], ["code"]),
        (["workers/supervisor/supervisor.py", "docs/faults.md"], ["code", "docs", "runtime"]),
        (["workers/trainers/anew.py"], ["code", "trainers"]),
        (["tests/faults/test_disks.py"], ["runtime"]),
        (["tests/unit/compat/test_runai.py"], ["code", "vocabularies"]),
        (["constraints.txt"], None),
        (["docs/api.md", "pyproject.toml"], None),
        ([".ci/run"], None),
        (["tests/conftest.py"], None),
        (["tests/integration/conftest.py"], None),
        (["tests/systems/system.py"], None),
        (["docs/api.md", "somewhere/else"], None),
        ([], None),
        (None, None),
    ],
)
def test_a_change_runs_its_lanes_and_an_unknown_one_everything(
    changed: list[str] | None, expected: list[str] | None
) -> None:
    assert lanes_of(changed)[0] == expected


def test_the_reason_is_reported() -> None:
    assert lanes_of(["docs/api.md", "README.md"])[1] == "docs for docs/api.md"
    assert lanes_of(["docs/api.md", ".ci/run"])[1] == ".ci/run changed"


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a new repository with one commit on `main`."""

    def run(*words: str) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    (tmp_path / "old.py").write_text("")
    run("add", "-A")
    run("commit", "-qm", "first")
    return run


def test_a_branch_changes_what_it_committed_and_what_it_did_not_yet(git: Git, tmp_path: Path) -> None:
    git("checkout", "-qb", "topic")
    git("mv", "old.py", "new.py")
    git("commit", "-qm", "second")
    (tmp_path / "new.py").write_text("x = 1\n")
    (tmp_path / "größer.md").write_text("")

    assert sorted(changed_files(tmp_path) or []) == ["größer.md", "new.py", "old.py"]


def test_what_the_main_branch_has_beyond_is_no_change_of_this_one(git: Git, tmp_path: Path) -> None:
    git("checkout", "-qb", "topic")
    (tmp_path / "mine.py").write_text("")
    git("add", "-A")
    git("commit", "-qm", "mine")
    git("checkout", "-q", "main")
    (tmp_path / "theirs.py").write_text("")
    git("add", "-A")
    git("commit", "-qm", "theirs")
    git("checkout", "-q", "topic")

    assert changed_files(tmp_path) == ["mine.py"]


def test_changes_are_unknown_on_the_main_branch(git: Git, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("x = 1\n")

    assert changed_files(tmp_path) is None


def test_changes_are_unknown_without_a_main_branch_or_a_common_commit(git: Git, tmp_path: Path) -> None:
    git("checkout", "-q", "--orphan", "topic")
    git("commit", "-qm", "another beginning")
    assert changed_files(tmp_path) is None

    git("branch", "-D", "main")
    assert changed_files(tmp_path) is None


def test_changes_are_unknown_in_a_shallow_clone(git: Git, tmp_path: Path) -> None:
    git("checkout", "-qb", "topic")
    git("commit", "-q", "--allow-empty", "-m", "second")
    git("clone", "-q", "--depth", "1", "--no-single-branch", f"file://{tmp_path}", "clone")

    assert changed_files(tmp_path / "clone") is None


def test_changes_are_unknown_outside_a_repository(tmp_path: Path) -> None:
    assert changed_files(tmp_path) is None


@cache
def _lanes(path: str) -> list[str]:
    return lanes_of([path])[0] or list(table().lanes)


def _with_imports(start: Iterator[str]) -> set[str]:
    """These files and all files of ours that they import, directly or not."""
    found: set[str] = set()
    left = list(start)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported_by(path)
    return found


@cache
def _imported_by(path: str) -> list[str]:
    """Those that are files of ours. Several tests ask for the same files, and parsing one takes milliseconds."""
    imported: list[str] = []
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name}" for name in names)]
        for name in names:
            files = (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py")
            imported += [file for file in files if _exists(file)]
    return imported


@cache
def _exists(file: str) -> bool:
    return (ROOT / file).exists()
