"""Runs skopeo, which copies images, and umoci, which unpacks them, in a sandbox: what they read may be hostile."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import LOCAL, ImageReference
from app.host.images import SKOPEO, UMOCI
from config.images import ImageSettings
from config.redaction import Redaction
from workers.attempt_failed import AttemptFailed
from workers.run_dir.sizes import allocated_bytes
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

LAYOUT, ROOT = "layout", "root"  # in the directory of one image
_NAME = "image"  # in the layout
_CERTIFICATES = tuple(map(Path, ("/etc/containers/certs.d", "/etc/docker/certs.d")))
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.01, 0.5
_MOST_ERRORS, _MOST_MESSAGE, _MOST_ANSWER = 1 << 16, 2000, 4 << 20
_MESSAGE = re.compile(r'level=(?:fatal|error) msg="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, kw_only=True)
class ImageTools:
    """``directory`` is where they write, at most ``max_bytes``; ``until`` is in time.monotonic().

    ``login`` is the job's own for the registry of the image, in place of the operator's ``auth_file``.
    """

    sandbox: Sandbox
    directory: Path
    data_dir: Path
    max_bytes: int
    until: float
    auth_file: Path | None = None
    login: RegistryLogin | None = None
    plain_http: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        settings: ImageSettings,
        project: str,
        sandbox: Sandbox,
        *,
        directory: Path,
        data_dir: Path,
        seconds: float,
        login: RegistryLogin | None,
    ) -> "ImageTools":
        """With this login, or else those of the project, for so many seconds from now."""
        return cls(
            sandbox=sandbox,
            directory=directory,
            data_dir=data_dir,
            max_bytes=settings.max_bytes,
            until=time.monotonic() + seconds,
            auth_file=settings.auth_file_of(project) if login is None else None,
            login=login,
            plain_http=settings.plain_http,
        )

    def digest(self, reference: ImageReference) -> str:
        """64 hex digits of the manifest that the registry has now. Raises AttemptFailed for another one than named, and
        for layers that are too large already as they are fetched, compressed.
        """
        manifest = self._manifest(reference)
        found = hashlib.sha256(manifest).hexdigest()
        if reference.digest and reference.digest != f"sha256:{found}":
            raise AttemptFailed(
                "INVALID_CONFIG",
                f"resource_config.image.reference: the registry's {reference.name} has the digest sha256:{found}, "
                f"not {reference.digest}",
            )
        if layers_bytes(manifest) > self.max_bytes:
            raise self._too_large()
        return found

    def _manifest(self, reference: ImageReference) -> bytes:
        """The manifest, or list of manifests, that the reference names. Raises AttemptFailed."""
        with tempfile.TemporaryFile() as answer:
            self._skopeo(reference, ["inspect", "--raw"], [_address(reference)], answer)
            answer.seek(0)
            return answer.read(_MOST_ANSWER)

    @property
    def layout(self) -> Path:
        """What ``copy`` makes."""
        return self.directory / LAYOUT

    def copy(self, reference: ImageReference) -> Path:
        """An OCI layout with the image alone. Raises AttemptFailed."""
        with tempfile.TemporaryFile() as answer:
            places = [_address(reference), f"oci:{LAYOUT}:{_NAME}"]
            self._skopeo(reference, ["copy", "--quiet"], places, answer, prefix="src-")
        return self.layout

    def unpack(self) -> Path:
        """The root file system of what was copied, owned by this user. Raises AttemptFailed."""
        command = [UMOCI, "raw", "unpack", "--rootless", "--image", f"{LAYOUT}:{_NAME}", ROOT]
        with tempfile.TemporaryFile() as answer:
            failed = self._run(command, answer, network=False)
        if failed:
            raise AttemptFailed("INVALID_CONFIG", f"resource_config.image: it can't be unpacked: {failed}")
        shutil.rmtree(self.layout)
        return self.directory / ROOT

    def _options(self, reference: ImageReference, prefix: str, logins: Path | None) -> list[str]:
        if reference.is_local:
            return []
        login = [f"--{prefix}no-creds"] if logins is None else [f"--{prefix}authfile", str(logins)]
        return [*login, *([f"--{prefix}tls-verify=false"] if reference.host in self.plain_http else [])]

    @property
    def has_logins(self) -> bool:
        return self.login is not None or (self.auth_file is not None and self.auth_file.is_file())

    def _skopeo(
        self,
        reference: ImageReference,
        command: Sequence[str],
        places: Sequence[str],
        answer: IO[bytes],
        *,
        prefix: str = "",
    ) -> None:
        """``prefix`` of options that are about the image. Raises AttemptFailed."""
        logins = self.auth_file if self.login is None and self.has_logins and not reference.is_local else None
        shown = [Path(reference.name)] if reference.is_local else [] if logins is None else [logins]
        with _login_file(reference, self.login) as file:
            if file is not None:
                logins = Path(f"/proc/self/fd/{file}")
            options = [*self._options(reference, prefix, logins), *places]
            failed = self._run(
                [SKOPEO, "--insecure-policy", *command, *options],  # there is no policy of signatures
                answer,
                network=not reference.is_local,
                readable=(*shown, *(path for path in _CERTIFICATES if path.is_dir())),
                inherited=() if file is None else (file,),
            )
        if failed:
            raise _failure(reference, failed, self.auth_file, self.login)

    def _run(
        self,
        command: Sequence[str],
        answer: IO[bytes],
        *,
        network: bool,
        readable: Sequence[Path] = (),
        inherited: Sequence[int] = (),
    ) -> str:
        """Why it failed; empty if it did not. Raises AttemptFailed for too much and too slow."""
        view = FilesystemView(run_dir=self.directory, data_dir=self.data_dir, readable=tuple(readable))
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.directory)}
        environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "workers.sandbox.second_lock", *command]
        if network:
            environment |= {name: os.environ[name] for name in _PROXIES if name in os.environ}
        with tempfile.TemporaryFile() as errors:
            with self.sandbox.enclosed(command, SandboxSpec(view=view, own_network=not network)) as enclosed:
                process = subprocess.Popen(
                    enclosed.command,
                    env=environment,
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=answer,
                    stderr=errors,
                    pass_fds=(*enclosed.files, *inherited),
                    start_new_session=True,
                )
            try:
                code = self._wait(process)
            finally:
                process.kill()
                process.wait()
            errors.seek(0)
            text = _redaction(self.login).bounded(errors.read(_MOST_ERRORS).decode(errors="replace"), _MOST_ERRORS)
        if code == 0:
            return ""
        found = _MESSAGE.findall(text)
        message = found[-1].replace('\\"', '"') if found else text.strip()
        return message[-_MOST_MESSAGE:] or f"{command[0]} ended with exit code {code}"

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        pause = _FIRST_POLL_SECONDS
        while (code := process.poll()) is None:
            if time.monotonic() > self.until:
                raise AttemptFailed(
                    "STORAGE_ERROR",
                    "resource_config.image: it is not fetched in time; make it smaller, or have the operator raise "
                    "TRAINYARD_IMAGES_FETCH_SECONDS",
                )
            time.sleep(pause)
            if pause == _POLL_SECONDS:
                self._check_size()
            pause = min(_POLL_SECONDS, 2 * pause)
        self._check_size()
        return code

    def _check_size(self) -> None:
        if allocated_bytes(self.directory) > self.max_bytes:
            raise self._too_large()

    def _too_large(self) -> AttemptFailed:
        return AttemptFailed(
            "INVALID_CONFIG",
            f"resource_config.image: it takes more than {self.max_bytes} bytes; make it smaller, or have the "
            "operator raise TRAINYARD_IMAGES_MAX_BYTES",
        )


def layers_bytes(manifest: bytes) -> int:
    """Size of the layers that an image's manifest names; 0 for a list of manifests, and for what is none.

    See the OCI image specification, "Image Manifest"; the registry's own is the same there.
    """
    try:
        layers = json.loads(manifest)["layers"]
        return sum(max(0, int(each["size"])) for each in layers)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0  # nothing can be known of it before it is fetched


def _address(reference: ImageReference) -> str:
    """As skopeo names it: of tag and digest, the latter decides."""
    if reference.transport in LOCAL:
        return str(reference)
    tag = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
    return f"docker://{reference.name}{tag}"


@contextmanager
def _login_file(reference: ImageReference, login: RegistryLogin | None) -> Iterator[int | None]:
    """A file in memory to inherit, as of `docker login`, for the registry of this image alone; None without a login."""
    if login is None or reference.is_local:
        yield None
        return
    descriptor = os.memfd_create("login")
    try:
        os.write(descriptor, json.dumps({"auths": {reference.host: {"auth": _basic(login)}}}).encode())
        yield descriptor
    finally:
        os.close(descriptor)


def _redaction(login: RegistryLogin | None) -> Redaction:
    """A registry or its token server may send back what it was sent."""
    return Redaction(() if login is None else (login.password, _basic(login)))


def _basic(login: RegistryLogin) -> str:
    """As RFC 7617 says."""
    return base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


def _failure(
    reference: ImageReference, message: str, auth_file: Path | None, login: RegistryLogin | None
) -> AttemptFailed:
    """With the way out."""
    field, lowered = "resource_config.image.reference", message.lower()
    if "does not match provided manifest digest" in lowered:
        return AttemptFailed(
            "INVALID_CONFIG", f"{field}: the registry's {reference.name} has another digest: {message}"
        )
    if any(word in lowered for word in ("unauthorized", "denied", "authentication required")):
        where = f"; the logins of this project are read from {auth_file}" if auth_file else ""
        if login is not None:
            where = f"; the job's own login is for {login.registry} (resource_config.registry_logins)"
        return AttemptFailed(
            "INVALID_CONFIG",
            f"{field}: the registry does not let this project read {reference}, or there is no such image{where}: "
            f"{message}",
        )
    if any(word in lowered for word in ("manifest unknown", "name unknown", "not found", "no such", "no descriptor")):
        return AttemptFailed("INVALID_CONFIG", f"{field}: there is no image {reference}: {message}")
    if reference.is_local:
        return AttemptFailed("INVALID_CONFIG", f"{field}: {reference} can't be read: {message}")
    return AttemptFailed("STORAGE_ERROR", f"{field}: {reference} can't be fetched: {message}")
