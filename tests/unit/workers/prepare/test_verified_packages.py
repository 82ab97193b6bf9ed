"""What uv gets to read, and what the node reads of what it has installed."""

import os
import tracemalloc
from pathlib import Path

import pytest

from app.domain.spec.packages import Packages
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages import uv_limits
from workers.prepare.packages.requirements_text import requirements_text
from workers.prepare.packages.uv_limits import LAST_BYTES, LastOutput, limited_group
from workers.prepare.packages.verified import installed, metadata, skeleton_of, verify

DIGEST = "sha256:" + "0123456789abcdef" * 4
HASH = f"--hash={DIGEST}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    found = tmp_path / "env/lib/python3.11/site-packages"
    found.mkdir(parents=True)
    return found


def package(site: Path, name: str, text: str = "") -> Path:
    place = site / f"{name}-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{text}")
    return place


def test_text_for_uv_is_made_from_what_was_parsed():
    asked = Packages(requirements=("httpx[http2]>=1 ;python_version>'3'", "a@https://h.example/a-1-py3-none-any.whl"))
    lock = f"# by \\\nNumPy [x] == 2 ; python_version > '3' \\\n  {HASH} \\\n  {HASH}  # via a\n"

    assert requirements_text(asked) == (
        'httpx[http2]>=1; python_version > "3"\na @ https://h.example/a-1-py3-none-any.whl\n'
    )
    assert requirements_text(Packages(lock=lock)) == f'NumPy[x]==2; python_version > "3" {HASH} {HASH}\n'


@pytest.mark.parametrize(
    "packages",
    [
        Packages(requirements=("a @ https://h.example/a.whl\n--index-url=https://other.example",)),
        Packages(requirements=("a @ https://h.example/a.whl\r-rx",)),
        Packages(requirements=("a @ https://h.example/a.whl\\", "b")),
        Packages(requirements=("a @ https://h.example/${HOME}/a.whl",)),
        Packages(requirements=("a ; python_version == ' --pre'",)),
        Packages(requirements=("a ;" + "(" * 1000 + "python_version > '3'" + ")" * 1000,)),
        Packages(lock=f"# a comment \\\n--no-binary=a\na==1 {HASH}"),
        Packages(lock=f"# a comment \\\n-r /etc/passwd\na==1 {HASH}"),
        Packages(lock=f"a==1 --no-binary=a {HASH}"),
        Packages(lock=f"a==1 {HASH} --no-binary=a"),
        Packages(lock=f"a==1 @ https://h.example/a.whl {HASH}"),
        Packages(lock=f"a==1 ; python_version > '3' -r x {HASH}"),
    ],
)
def test_options_reach_uv_by_no_way(packages):
    with pytest.raises(AttemptFailed) as refused:
        requirements_text(packages)

    assert refused.value.error_type == "INVALID_CONFIG"


def test_metadata_is_read_up_to_a_limit(site):
    with (package(site, "large", "Requires-Dist: torch\n\n") / "METADATA").open("ab") as file:
        file.truncate(300 << 20)
    tracemalloc.start()
    try:
        (found,) = metadata(site.parents[2], "3.11")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert (found.name, found.needs) == ("large", ("torch",))


def test_pipes_and_links_are_no_metadata(site, tmp_path):
    for name in ("pipe", "link"):
        (package(site, name) / "METADATA").unlink()
    os.mkfifo(site / "pipe-1.dist-info/METADATA")
    (site / "link-1.dist-info/METADATA").symlink_to("/etc/passwd")
    package(tmp_path, "elsewhere").rename(tmp_path / "elsewhere")
    (site / "elsewhere-1.dist-info").symlink_to(tmp_path / "elsewhere")

    assert list(metadata(site.parents[2], "3.11")) == []
    assert installed(site.parents[2], "3.11") == ["link==1", "pipe==1"]


@pytest.mark.parametrize("swapped", ["", "lib", "lib/python3.11", "lib/python3.11/site-packages"])
def test_links_in_the_way_to_the_packages_are_refused(site, tmp_path, swapped):
    environment = tmp_path / "env"
    before = skeleton_of(environment)
    verify(environment, before, "3.11")
    (environment / swapped).rename(tmp_path / "real")
    (environment / swapped).symlink_to(tmp_path / "real")

    for act in (lambda: verify(environment, before, "3.11"), lambda: installed(environment, "3.11")):
        with pytest.raises(AttemptFailed, match="what was installed is refused"):
            act()


def test_deep_directories_are_refused(site, tmp_path):
    before = skeleton_of(tmp_path / "env")
    (site / "/".join("d" * 100)).mkdir(parents=True)

    with pytest.raises(AttemptFailed, match="64 directories in another"):
        verify(tmp_path / "env", before, "3.11")


def test_end_of_the_output_is_kept():
    with LastOutput() as output:
        writing = os.dup(output.file)
        output.begin()
        for _ in range(32):
            os.write(writing, bytes(1 << 20))
        os.write(writing, b"the end")
        os.close(writing)

    assert output.text().endswith("the end")
    assert len(output.text()) == LAST_BYTES


def test_machine_may_have_no_control_groups(monkeypatch):
    def refused() -> None:
        raise PermissionError

    monkeypatch.setattr(uv_limits, "find_hierarchies", refused)
    with limited_group() as group:
        assert group is None
