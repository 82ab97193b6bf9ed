"""Archives of directories are unpacked within limits, and nothing else comes of a hostile one."""

import errno
import gzip
import io
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from workers.fetching.child.client import run_child
from workers.fetching.code.unpack import BadArchive, UnpackLimits, unpack

LIMITS = UnpackLimits(max_bytes=10_000, max_files=10)
Entry = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes = b"x", mode: int = 0o644) -> Entry:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    return info, content


def other(name: str, kind: bytes, to: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info, b""


def tar_of(entries: Iterable[Entry]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def unpacked(folder: Path, content: bytes, limits: UnpackLimits = LIMITS, skip: tuple[str, ...] = ()) -> Path:
    archive, target = folder / "archive", folder / "target"
    archive.write_bytes(content)
    unpack(archive, target, limits, skip)
    return target


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress], ids=["plain", "gzip", "zstd"]
)
def test_files_links_and_programs(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    entries = [
        file("./a/run.sh", b"#!/bin/sh\n", 0o4755),
        file("a/data", b"1", 0o600),
        other("a/link", tarfile.SYMTYPE, "../b"),
        other("b", tarfile.SYMTYPE, "a/data"),
        other("hard", tarfile.LNKTYPE, "a/data"),
        other("empty", tarfile.DIRTYPE),
    ]

    target = unpacked(tmp_path, pack(tar_of(entries)))

    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == [
        *("a", "a/data", "a/link", "a/run.sh", "b", "empty", "hard")
    ]
    assert (target / "a/link").read_bytes() == (target / "hard").read_bytes() == b"1"
    assert [(target / "a" / name).stat().st_mode & 0o7777 for name in ("run.sh", "data")] == [0o755, 0o644]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([file("/etc/passwd")], "leads out"),
        ([file("a/../../b")], "leads out"),
        ([other("l", tarfile.SYMTYPE, "/etc"), file("l/passwd")], "leads out"),
        ([other("l", tarfile.SYMTYPE, "../x"), file("a")], "leads out"),
        ([other("d/l", tarfile.SYMTYPE, "z/../.."), other("d/z", tarfile.SYMTYPE, "../t"), file("t/a")], "leads out"),
        ([other("l", tarfile.SYMTYPE, "d"), file("d/a"), file("l/b")], "twice"),
        ([other("h", tarfile.LNKTYPE, "/etc/passwd")], "leads out"),
        ([other("h", tarfile.LNKTYPE, "later"), file("later")], "not in it"),
        ([other("d", tarfile.BLKTYPE)], "a device"),
        ([other("p", tarfile.FIFOTYPE)], "a device, a pipe"),
        ([file("a"), file("a")], "twice"),
        ([file("a"), file("a/b")], "a file, too"),
        ([file("a/b"), file("a")], "a file and a directory"),
        ([file("n" * 256)], "can't be the name"),
        ([file("a\nb")], "can't be the name"),
        ([file("\x1b[31ma")], "can't be the name"),
        ([file("a\udcff")], "can't be the name"),
        ([file("a"), other("l", tarfile.SYMTYPE, "a\nb")], "can't lead to"),
        ([file("a/" * 64 + "f")], "64 names, the most allowed"),
        ([file("/".join(["n" * 200] * 6))], "longer than 1024 bytes"),
        ([file("a"), other("l", tarfile.SYMTYPE, ".")], "contains itself"),
        ([file("a"), other("d/l", tarfile.SYMTYPE, "..")], "contains itself"),
        ([file("f"), other("d/" * 11, tarfile.DIRTYPE)], "more than 10 files and directories"),
        ([file("f"), *(other(f"{i}/a/b/c", tarfile.DIRTYPE) for i in range(3))], "more than 10 files and directories"),
        ([file("a", b"x" * 10_001)], "more than 10,000 bytes"),
        ([file(str(i)) for i in range(11)], "more than 10 files"),
        ([other("d", tarfile.DIRTYPE)], "no file"),
        ([], "no file"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, entries: list[Entry], message: str) -> None:
    outside = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    with pytest.raises(BadArchive, match=message):
        unpacked(tmp_path, tar_of(entries))

    assert {path.name for path in tmp_path.iterdir()} - set(outside) == {"archive", "target"}


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", tar_of([file("a", b"x" * 5000)])[:2000], gzip.compress(tar_of([file("a")]))[:-20]],
    ids=["empty", "other", "cut", "cut gzip"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadArchive, match=r"no archive|no file|cut off"):
        unpacked(tmp_path, content)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([(f"l{i:05}", f"l{i + 1:05}") for i in range(3000)], "leads through too many others"),
        ([(f"l{i:05}", f"l{i + 1:05}") for i in range(60)], "leads through too many others"),
        ([(f"l{i:05}", f"l{i:05}") for i in range(200)], "leads through too many others"),
    ],
    ids=["deep", "more than the kernel follows", "loops"],
)
def test_chains_of_links_are_refused(tmp_path: Path, links: list[tuple[str, str]], message: str) -> None:
    entries = [file("f"), *(other(name, tarfile.SYMTYPE, to) for name, to in links)]

    with pytest.raises(BadArchive, match=message):
        unpacked(tmp_path, tar_of(entries), UnpackLimits(max_bytes=10_000, max_files=20_000))


def test_loop_of_links_is_kept(tmp_path: Path) -> None:
    """Repositories have them in their tests."""
    entries = [file("f"), other("a", tarfile.SYMTYPE, "b"), other("b", tarfile.SYMTYPE, "a")]

    assert (unpacked(tmp_path, tar_of(entries)) / "a").is_symlink()


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"a": "b"}, id="one"),
        pytest.param({f"k{i}": "v" for i in range(100_000)}, id="many", marks=pytest.mark.long),
    ],
)
def test_global_headers_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    block = tarfile.TarInfo.create_pax_global_header(headers)
    began = time.monotonic()

    with pytest.raises(BadArchive, match="global headers"):
        unpacked(tmp_path, block + tar_of([file("a")]), UnpackLimits(max_bytes=10_000_000, max_files=20))

    assert time.monotonic() - began < 10


def test_thousands_of_global_headers_are_no_failure_of_the_node(tmp_path: Path) -> None:
    block = tarfile.TarInfo.create_pax_global_header({"comment": "b"})

    with pytest.raises(BadArchive, match=r"no archive that can be unpacked.*recursion"):
        unpacked(tmp_path, block * 2000 + tar_of([file("a")]), UnpackLimits(max_bytes=10_000_000, max_files=20))


def test_full_disk_is_not_the_archives_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))

    with pytest.raises(OSError, match="No space left") as full:
        unpacked(tmp_path, tar_of([file("a")]))

    assert full.value.errno == errno.ENOSPC


def test_headers_count(tmp_path: Path) -> None:
    """A name of many bytes is a header, which no file's size shows."""
    info, content = file("a" * 800_000)

    with pytest.raises(BadArchive, match="more than 10,000 bytes"):
        unpacked(tmp_path, gzip.compress(tar_of([(info, content)])))


def test_left_out_names(tmp_path: Path) -> None:
    target = unpacked(tmp_path, tar_of([file("model.safetensors"), file("config.json")]), skip=("*.safetensors",))

    assert [path.name for path in target.iterdir()] == ["config.json"]


def test_process_of_its_own_answers(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(tar_of([file("a")]))
    request = {"archive": str(tmp_path / "archive"), "target": str(tmp_path / "target"), "skip": []}

    for limits, expected in (({"max_files": 5}, {"files": 1}), ({"max_files": 0}, None)):
        request["target"] = str(tmp_path / f"target{limits['max_files']}")
        answer = run_child(
            "workers.fetching.code.unpack", {**request, "max_bytes": 100, **limits}, what="it", stalled_seconds=20
        )
        assert answer == expected or (expected is None and answer["too_large"])
    assert [path.name for path in (tmp_path / "target5").iterdir()] == ["a"]
