"""Where paths lead, and for how long that is taken for granted."""

import itertools
import os
import tracemalloc
from pathlib import Path

import pytest

from app.services.requests.storage_access import REMEMBERED_SECONDS, RealPaths


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def move(link: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def test_configured_directory_that_leads_elsewhere_is_noticed_after_a_moment(tmp_path: Path) -> None:
    clock, root = Clock(), tmp_path / "root"
    paths = RealPaths(frozenset({str(root)}), clock)
    move(root, tmp_path / "a")

    assert paths(str(root)) == str(tmp_path / "a")
    move(root, tmp_path / "b")
    assert paths(str(root)) == str(tmp_path / "a")
    clock.now += REMEMBERED_SECONDS + 0.1
    assert paths(str(root)) == str(tmp_path / "b")


def test_any_other_path_is_followed_each_time(tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "root" / "link"
    root.mkdir()
    paths = RealPaths(frozenset({str(root)}), Clock())
    move(link, tmp_path / "a")

    assert paths(str(link)) == str(tmp_path / "a")
    move(link, tmp_path / "b")
    assert paths(str(link)) == str(tmp_path / "b")


def test_paths_of_one_document_lead_where_each_of_them_leads_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "file").touch()
    move(root / "out", tmp_path / "elsewhere")
    (root / "loop").symlink_to(root / "loop")
    (root / "up").symlink_to("../elsewhere")
    names = ["", "data", "data/file", "data/file/below", "out", "out/a/b", "loop", "loop/a", "up/a", "none/at/all"]
    odd = ["data/../out/a", "./data", "data//file", "data/file/", "out/.."]
    given = ["/", "//srv", "relative/path", *(f"{root}/{name}" for name in (*names, *odd))]

    real_path = RealPaths(frozenset({str(root)}), Clock()).remembering()

    assert {path: real_path(path) for path in given} == {path: os.path.realpath(path) for path in given}


def test_path_of_many_directories_is_followed(tmp_path: Path) -> None:
    path = str(tmp_path) + "/a" * 2000

    assert RealPaths(frozenset(), Clock()).remembering()(path) == path


@pytest.mark.parametrize("links", [20, 1000])
def test_links_on_the_way_are_followed_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int) -> None:
    (tmp_path / "l").symlink_to(".")
    looks, lstat = itertools.count(), os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **more: (lstat(path, **more), next(looks))[0])
    given = f"{tmp_path}{'/l' * links}"

    found = RealPaths(frozenset(), Clock()).remembering()(given)

    assert found == str(tmp_path)
    assert next(looks) <= (len(tmp_path.parts) + 3) * (links + 1)


@pytest.mark.parametrize(("directories", "most"), [("/a" * 500, 100_000), (f"/{'a' * 120}" * 25, 3_000_000)])
def test_little_is_remembered_of_deep_paths(directories: str, most: int) -> None:
    real_path = RealPaths(frozenset(), Clock()).remembering()

    tracemalloc.start()
    try:
        for number in range(50):
            real_path(f"/none-{number}{directories}")
        remembered = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert remembered < most
