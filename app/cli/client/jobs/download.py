"""`trainyard download`: the files of a job, each complete and with the hash that the server has recorded."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath

import click

from app.cli.choice import SuggestingChoice
from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_json, short_id
from trainyard._client.downloads import TAG, UNFINISHED
from trainyard.client import Client, ClientError, Job
from trainyard.records import Artifact

KINDS = ("model", "nodes", "tensorboard", "wandb", "diagnostics", "all")
AT_ONCE = 4
MEGABYTE = 1_000_000


@click.command()
@job_argument
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the files.  [default: the job's name, here; with its id where another job's are there]",
)
@click.option("--kind", type=SuggestingChoice(KINDS), help="Which files.  [default: model, or all where PATH is given]")
@local_option
@json_option
def download(*, handle: str, paths: tuple[str, ...], to: Path | None, kind: str | None, as_json: bool) -> None:
    """Download the files of JOB, or those of PATH: a file, or a folder with all in it.

    The same command again resumes a broken download, and leaves what is complete. A file that is there with another
    content is not overwritten.
    """
    with server() as client:
        job_id = job_id_of(client, handle)
        kind = kind or ("all" if paths else "model")
        found = _selected(client.artifacts(job_id, kind=kind), paths, kind)
        folder = to or _own_folder(client.get(job_id), found)
        if clash := next(_clashes(folder, found), None):
            raise click.ClickException(f"{clash} exists with another content; nothing is saved; choose another --to")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            failures = [each for each in pool.map(lambda file: _fetch(client, job_id, file, folder), found) if each]
    for failure in failures:
        click.echo(f"Error: {failure}", err=True)
    saved = len(found) - len(failures)
    if as_json:
        print_json({"job_id": job_id, "folder": str(folder), "files": found, "failures": failures})
    elif saved:
        size = sum(each["size_bytes"] for each in found)
        click.echo(f"{folder}: {saved} of {len(found)} files, {size / MEGABYTE:,.1f} MB in all, hashes checked")
    if failures:
        sys.exit(1)


def _selected(files: Sequence[Artifact], paths: Sequence[str], kind: str) -> list[Artifact]:
    """Those of the paths, or all. Raises ClickException for a path that matches none."""
    if not files:
        none = "the job left no files; a script writes them to $TRAINYARD_OUTPUT_DIR"
        some = "the job has no such files; `--kind all` selects every kind"
        raise click.ClickException(none if kind == "all" else some)
    wanted = [path.strip("/") for path in paths]
    for path in wanted:
        if not any(_is_in(file["path"], [path]) for file in files):
            listed = ", ".join(file["path"] for file in files[:10]) + (", …" if len(files) > 10 else "")
            raise click.ClickException(f"the job has no file {path!r}; it has: {listed}")
    return [file for file in files if not wanted or _is_in(file["path"], wanted)]


def _is_in(path: str, wanted: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in wanted)


def _fetch(client: Client, job_id: str, file: Artifact, folder: Path) -> str:
    """Save one file; returns what went wrong, or nothing."""
    try:
        to = _place(folder, file["path"])
        if to.exists():
            return "" if _sha256(to) == file["sha256"] else f"{to} exists with another content; choose another --to"
        to.parent.mkdir(parents=True, exist_ok=True)
        client.download(job_id, file["path"], to, sha256=file["sha256"])
    except (ClientError, ValueError) as error:
        return str(error)
    except OSError as error:
        return f"{file['path']} can't be saved: {error.strerror or error}"
    return ""


def _place(folder: Path, path: str) -> Path:
    """Where the file goes: inside the folder, whatever the server says. Raises ValueError."""
    parts = PurePosixPath(path)
    is_plain = not parts.is_absolute() and ".." not in parts.parts and "\\" not in path
    if not path or not is_plain or PureWindowsPath(path).drive:
        raise ValueError(f"{path!r} is no path inside a folder; it is not saved")
    if path.endswith((UNFINISHED, TAG)):
        raise ValueError(f"{path!r} is named like a part of a download; it is not saved")
    to = folder / path
    if not to.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{to} leads out of {folder} by a link; it is not saved")
    return to


def _own_folder(job: Job, files: Sequence[Artifact]) -> Path:
    """Named after the job; with the end of its id where a job of this name has left other files."""
    name = _folder_name(job.name)
    if not name:
        return Path(job.job_id)
    return Path(f"{name}-{short_id(job.job_id)}") if any(_clashes(Path(name), files)) else Path(name)


def _clashes(folder: Path, files: Sequence[Artifact]) -> Iterator[Path]:
    """Files that are there with another content than the job's."""
    for file in files:
        try:
            path = _place(folder, file["path"])
            if path.is_file() and (path.stat().st_size != file["size_bytes"] or _sha256(path) != file["sha256"]):
                yield path
        except (OSError, ValueError):
            continue  # _fetch says so


def _folder_name(name: str) -> str:
    return name.strip() if name.strip(". ") and "/" not in name else ""


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_of(path, found.st_size, found.st_mtime_ns)


@cache
def _sha256_of(path: Path, _size: int, _changed_ns: int) -> str:
    """Computed once for a state of the file: models are large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
