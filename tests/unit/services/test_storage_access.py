"""Where paths lead, and for how long that is taken for granted."""

import os
from pathlib import Path

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
