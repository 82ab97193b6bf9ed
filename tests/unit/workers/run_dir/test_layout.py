"""Run directories are deleted whole, and nothing that they only lead to."""

from pathlib import Path

import pytest

from workers.run_dir.layout import run_directory


@pytest.mark.parametrize("linked", ["image", "image/work", "image/work/work"])
def test_links_that_ranks_left_in_place_of_an_overlay_are_not_followed(tmp_path: Path, linked: str) -> None:
    run = run_directory(tmp_path, "job-1", 1)
    run.make()
    outside = tmp_path / "outside"
    (outside / "work" / "work").mkdir(parents=True)
    for path in (outside, outside / "work", outside / "work" / "work"):
        path.chmod(0o755)
    link = run.path / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)

    run.remove()

    assert not run.path.exists()
    modes = [path.stat().st_mode & 0o777 for path in (outside, outside / "work", outside / "work" / "work")]
    assert modes == [0o755] * 3


def test_overlay_whose_inner_directory_is_closed_goes_with_the_run_directory(tmp_path: Path) -> None:
    run = run_directory(tmp_path, "job-1", 1)
    run.make()
    inner = run.path / "image" / "work" / "work"
    inner.mkdir(parents=True)
    inner.chmod(0)

    run.remove()

    assert not run.path.exists()
