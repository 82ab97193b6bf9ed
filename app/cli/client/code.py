"""Directories as uploads: packed the same way each time, so that the server is asked for the content first."""

import copy
import hashlib
import math
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.domain.files.purposes import DIRECTORY, LONGEST_EXPIRY_SECONDS
from app.domain.spec.frameworks.custom import CODE_CREDENTIALS, CODE_DIR, SCRIPT
from app.domain.spec.locations.code import (
    LONGEST_PATH,
    MOST_BYTES,
    MOST_FILES,
    MOST_PARTS,
    can_be_shown,
    path_in_bundle,
)
from config.environment import client_tokens
from trainyard.client import Client

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MIB = 1 << 20
NEVER = frozenset({".git", "__pycache__"})
_IGNORE = ".gitignore"
_LEVEL = 3  # of zstd: faster than the disk
_KEPT_SECONDS = 86400  # what expires sooner is uploaded again
_LARGEST_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A packed directory. ``names``: its files and links, by their paths in it."""

    archive: Path
    sha256: str
    names: frozenset[str]
    content_bytes: int

    def __str__(self) -> str:
        return f"{len(self.names)} files, {shown_size(self.content_bytes)}"


@dataclass(frozen=True, kw_only=True)
class CodeEntry:
    name: str
    path: Path
    size_bytes: int
    link: str = ""
    is_program: bool = False


@contextmanager
def packed(directory: Path, *, is_code: bool) -> Iterator[Bundle]:
    """Pack the directory into a temporary file. Raises ClickException for what can't be uploaded.

    ``is_code``: within the limits of code, and without what `.gitignore` leaves out.
    """
    entries = list(_entries(directory, ignores=is_code))
    if not entries:
        left_out = f", or {_IGNORE} leaves all of them out" if is_code else ""
        raise click.ClickException(f"{directory} has no files{left_out}")
    if is_code:
        _refuse_large(directory, entries)
    with tempfile.TemporaryDirectory(prefix="trainyard-") as scratch:
        archive = Path(scratch) / f"{directory.resolve().name or 'directory'}.tar.zst"
        _pack(entries, archive)
        with archive.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        yield Bundle(
            archive=archive,
            sha256=sha256,
            names=frozenset(entry.name for entry in entries),
            content_bytes=sum(entry.size_bytes for entry in entries),
        )


def known_file(client: Client, sha256: str, purpose: str = DIRECTORY, *, for_good: bool = False) -> str:
    """The id of a file with this content that stays for a day or more, or until it is deleted; empty if there is none.

    ``for_good``: only one that does not expire.
    """
    until = math.inf if for_good else time.time() + _KEPT_SECONDS
    for file in client.files.list(purpose=purpose, sha256=sha256):
        expires_at = file["expires_at"]
        if expires_at is None or expires_at > until:
            return file["id"]
    return ""


def upload_code(client: Client, directory: Path, document: dict[str, Any], *, is_dry: bool) -> None:
    """Upload the directory, unless the server has it, and make it the code of the document's job.

    A dry run uploads nothing, and leaves out of the document what is not there yet; it was looked up in the directory.
    """
    with packed(directory, is_code=True) as bundle:
        framework = _framework(document)
        if script := framework.get(SCRIPT):
            framework[SCRIPT] = _script_in(str(script), directory, bundle.names)
        _check_requirements_file(document, directory, bundle.names)
        file_id = known_file(client, bundle.sha256)
        if file_id:
            click.echo(f"Code: {bundle}; the server has it ({file_id})", err=True)
        elif is_dry:
            click.echo(f"Code: {bundle}; it would be uploaded", err=True)
            _leave_out_code(document)
            return
        else:
            _refuse_bad(client, document)
            stored = client.files.put(bundle.archive, DIRECTORY, expires_seconds=LONGEST_EXPIRY_SECONDS)
            file_id = stored["id"]
            click.echo(f"Code: {bundle}; uploaded as {file_id}", err=True)
        framework[CODE_DIR] = file_id


def _refuse_bad(client: Client, document: dict[str, Any]) -> None:
    """Raises the ApiError of a document that is wrong whatever its code is, before that is uploaded."""
    asked = copy.deepcopy(document)
    _leave_out_code(asked)
    client.dry_run(asked, tokens=client_tokens())


def _check_requirements_file(document: Mapping[str, Any], directory: Path, names: frozenset[str]) -> None:
    """Raises ClickException where the job needs one, and the code does not have it."""
    packages = document["training_config"].get("packages")
    name = packages.get("requirements_file") if isinstance(packages, dict) else None
    if not isinstance(name, str) or not name or packages.get("requirements_file_required") is False:
        return
    if (inner := path_in_bundle(name)) and inner not in names:
        raise click.ClickException(
            f"training_config.packages.requirements_file: {name!r:.200} is not in {directory}, or {_IGNORE} leaves it "
            "out; add it, or name packages in requirements"
        )


def _leave_out_code(document: dict[str, Any]) -> None:
    """Ask for the same job without code: any command stands in for the script."""
    training = document["training_config"]
    framework = training["framework"]
    framework.pop(CODE_DIR, None)
    if framework.pop(SCRIPT, None):
        framework.pop("custom_arguments", None)
        framework["custom_command"] = ["true"]
    packages = training.get("packages")
    if isinstance(packages, dict) and packages.pop("requirements_file", None):
        packages.pop("requirements_file_required", None)
        if not packages.get("requirements") and not packages.get("lock"):
            del training["packages"]


def shown_size(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.1f} KiB"


def _framework(document: dict[str, Any]) -> dict[str, Any]:
    """Raises ClickException for a document without a place for code."""
    training = document.setdefault("training_config", {})
    framework = training.setdefault("framework", {}) if isinstance(training, dict) else None
    if not isinstance(framework, dict):
        raise click.ClickException("training_config.framework is not an object; --code names its code there")
    framework.setdefault("type", "CUSTOM")
    if framework.get(CODE_DIR):
        click.echo(f"Warning: --code replaces custom_code_dir, {framework[CODE_DIR]}", err=True)
    framework.pop(CODE_CREDENTIALS, None)
    return framework


def _script_in(script: str, directory: Path, names: frozenset[str]) -> str:
    """The path of the script in the code. Raises ClickException."""
    plain = script.removeprefix("file://")
    if (inner := path_in_bundle(plain)) in names:
        return inner
    here, root = Path(plain).resolve(), directory.resolve()
    if here.is_relative_to(root) and (below := here.relative_to(root).as_posix()) in names:
        return below
    alike = sorted(name for name in names if name.rpartition("/")[2] == plain.rpartition("/")[2])
    hint = f"it has {', '.join(alike[:3])}" if alike else f"{_IGNORE} may leave it out"
    raise click.ClickException(
        f"training_config.framework.{SCRIPT}: {script!r} is not in {directory}; {hint}; name the script by its path in "
        "the code"
    )


def _entries(directory: Path, *, ignores: bool) -> Iterator[CodeEntry]:
    """In the order of their names. Raises ClickException."""
    root = directory.resolve()
    rules = _Ignored(root) if ignores else None
    waiting = [root]
    found: list[CodeEntry] = []
    while waiting:
        folder = waiting.pop()
        try:
            if rules is not None:
                rules.read(folder)
            with os.scandir(folder) as listed:
                for each in listed:
                    is_folder = each.is_dir(follow_symlinks=False)
                    if each.name in NEVER or (
                        rules is not None and rules.leave_out(Path(each.path), is_folder=is_folder)
                    ):
                        continue
                    if is_folder:
                        waiting.append(Path(each.path))
                    else:
                        found.append(_entry(root, Path(each.path)))
        except OSError as error:
            raise click.ClickException(f"{error.filename or folder} can't be read: {error.strerror}") from error
    yield from sorted(found, key=lambda entry: os.fsencode(entry.name))


def _entry(root: Path, path: Path) -> CodeEntry:
    name = path.relative_to(root).as_posix()
    if len(os.fsencode(name)) > LONGEST_PATH or name.count("/") >= MOST_PARTS or not can_be_shown(name):
        raise click.ClickException(
            f"{str(path)[:200]!r} can't be uploaded: a path in the directory has at most {LONGEST_PATH} bytes, "
            f"{MOST_PARTS} names and no control characters"
        )
    if path.is_symlink():
        target = str(path.readlink())
        if path.resolve() == root:
            raise click.ClickException(
                f"{path} is a link to the directory that is uploaded, which then contains itself"
            )
        if target.startswith("/") or not path.resolve().is_relative_to(root):
            raise click.ClickException(
                f"{path} is a link that leads out of the directory, to {target}; replace it by a copy, or leave it out "
                f"with {_IGNORE}"
            )
        return CodeEntry(name=name, path=path, size_bytes=0, link=target)
    if not path.is_file():
        raise click.ClickException(f"{path} is no regular file: a device, a pipe or a socket can't be uploaded")
    status = path.stat()
    return CodeEntry(name=name, path=path, size_bytes=status.st_size, is_program=bool(status.st_mode & 0o100))


class _Ignored:
    """The rules of `.gitignore` in the directory, in those below, and in those above up to the repository's."""

    def __init__(self, root: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        above = list(root.parents)
        top = next((folder for folder in (root, *above) if (folder / ".git").exists()), root)
        for folder in (each for each in above if each.is_relative_to(top)):
            self.read(folder)

    def read(self, folder: Path) -> None:
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 – only --code needs it

        file = folder / _IGNORE
        if file.is_file():
            self._specs[folder] = GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines())

    def leave_out(self, path: Path, *, is_folder: bool) -> bool:
        """The nearest file that says anything about the path decides."""
        for folder in path.parents:
            spec = self._specs.get(folder)
            if spec is None:
                continue
            decided = spec.check_file(path.relative_to(folder).as_posix() + ("/" if is_folder else "")).include
            if decided is not None:
                return decided
        return False


def _refuse_large(directory: Path, entries: list[CodeEntry]) -> None:
    total = sum(entry.size_bytes for entry in entries)
    if len(entries) > MOST_FILES:
        raise click.ClickException(
            f"{directory} has {len(entries):,} files, and code may have {MOST_FILES:,}; leave some out with {_IGNORE}"
        )
    if total > MOST_BYTES:
        largest = sorted(entries, key=lambda entry: -entry.size_bytes)[:_LARGEST_SHOWN]
        named = ", ".join(f"{entry.name} {shown_size(entry.size_bytes)}" for entry in largest)
        raise click.ClickException(
            f"{directory} has {shown_size(total)} of files, and code may have {MOST_BYTES // MIB} MiB; leave data out "
            f"with {_IGNORE} and upload it with `trainyard data push` (the largest: {named})"
        )


def _pack(entries: list[CodeEntry], archive: Path) -> None:
    """Without owners, times and other modes, so that equal content gives equal bytes."""
    import zstandard  # noqa: PLC0415 – as above

    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    with (
        archive.open("wb") as file,
        compressor.stream_writer(file) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.mode = 0o755 if entry.is_program else 0o644
            if entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                tar.addfile(info)
                continue
            info.size = entry.size_bytes
            try:
                with entry.path.open("rb") as content:
                    tar.addfile(info, content)
            except OSError as error:
                reason = error.strerror or "it changes while it is read"
                raise click.ClickException(f"{entry.path} can't be read: {reason}") from error
