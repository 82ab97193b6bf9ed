"""Where paths lead, and for how long that is taken for granted."""

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
