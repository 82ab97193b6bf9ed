"""Container images for tests: OCI layouts made of a static busybox and whatever a test adds; and a registry for them.

Format: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md.
"""

import base64
import gzip
import hashlib
import io
import json
import platform
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUSYBOX = "/bin/busybox"  # of Debian's busybox-static
APPLETS = ("sh", "ls", "cat", "id", "env", "touch", "pwd", "sleep", "readlink")
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"

Member = tuple[str, bytes | str | None]  # path, and what it is: content, the text of a link, None for a directory


def tools() -> list[Member]:
    return [
        ("bin", None),
        ("bin/busybox", Path(BUSYBOX).read_bytes()),
        *((f"bin/{name}", "busybox") for name in APPLETS),
    ]


def make_image(layout: Path, *layers: Sequence[Member], machine: str = MACHINE, zeros: int = 0, **config: Any) -> str:
    """Make a layout with one image, of busybox and these layers; returns the digest of its manifest.

    ``zeros``: bytes of a further file, which take hardly any space in the layer. ``config`` is what the image says.
    """
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    made = [_layer(blobs, members) for members in (tools(), *layers)]
    if zeros:
        made.append(_layer(blobs, [("zeros", bytes(zeros))]))
    document = {
        "architecture": machine,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [plain for _, plain in made]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(blobs, json.dumps(document).encode(), _CONFIG),
        "layers": [layer for layer, _ in made],
    }
    described = _blob(blobs, json.dumps(manifest).encode(), _MANIFEST)
    named = {**described, "annotations": {"org.opencontainers.image.ref.name": "v1"}}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    return str(described["digest"])


def _layer(blobs: Path, members: Sequence[Member]) -> tuple[dict[str, Any], str]:
    """(its descriptor, the digest of what is compressed in it)"""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, what in members:
            entry = tarfile.TarInfo(path)
            entry.mode = 0o755
            if what is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(what, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, what
            else:
                entry.size = len(what)
            archive.addfile(entry, io.BytesIO(what) if isinstance(what, bytes) else None)
    plain = stream.getvalue()
    return _blob(blobs, gzip.compress(plain, 1, mtime=0), _LAYER), _digest(plain)


def _blob(blobs: Path, content: bytes, media_type: str) -> dict[str, Any]:
    digest = _digest(content)
    (blobs / digest.partition(":")[2]).write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


USER, PASSWORD = "team", "opensesame"
LOGIN = f"{USER}:{PASSWORD}"
_HTPASSWD = f"{USER}:$2y$04$abcdefghijklmnopqrstuuFuhxWRTXIsURoluSTZ1N4tYaWGn9oOi\n"  # bcrypt's


@contextmanager
def registry(directory: Path, *, private: bool = False) -> Iterator[str]:
    """HOST:PORT of a registry without TLS; a private one is for LOGIN alone."""
    program = shutil.which("docker-registry")
    assert program is not None, "no docker-registry on the PATH: scripts/install-system-packages"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    directory.mkdir(parents=True)
    (directory / "users").write_text(_HTPASSWD)
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(directory / "files")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "log": {"level": "error"},
        **({"auth": {"htpasswd": {"realm": "images", "path": str(directory / "users")}}} if private else {}),
    }
    (directory / "config.yml").write_text(json.dumps(config))
    process = subprocess.Popen([program, "serve", str(directory / "config.yml")], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def logins(host: str) -> str:
    """The file that `docker login` would write."""
    return json.dumps({"auths": {host: {"auth": base64.b64encode(LOGIN.encode()).decode()}}})


def copy(layout: Path, to: str) -> None:
    """To another place of skopeo's."""
    command = ["skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{layout}:v1", to]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def push(layout: Path, name: str, login: str = "") -> None:
    """``name`` is HOST:PORT/REPOSITORY:TAG."""
    command = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]
    command += ["--dest-creds", login] if login else []
    subprocess.run([*command, f"oci:{layout}:v1", f"docker://{name}"], check=True, capture_output=True, timeout=60)


def _wait_for(port: int, *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
