"""The wheel has what the dashboard needs besides its modules."""

from pathlib import Path

import pytest
from setuptools import Distribution  # type: ignore[import-untyped]  # it has no types
from setuptools.config.pyprojecttoml import apply_configuration  # type: ignore[import-untyped]  # it has no types

ROOT = Path(__file__).parents[3]


def test_all_that_pages_need_is_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    apply_configuration(distribution, ROOT / "pyproject.toml")
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    packed = {
        (Path(source) / name).as_posix()
        for _, source, _, names in command.get_data_files_without_manifest()
        for name in names
    }
    web = Path("app/web")
    needed = {path.as_posix() for part in ("templates", "static") for path in (web / part).rglob("*") if path.is_file()}

    assert needed - packed == set()
    assert len(needed) > 100
