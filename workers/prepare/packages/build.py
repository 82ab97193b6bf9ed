"""Builds one package environment: a virtual environment, its way to the node's packages, and what uv installs."""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from app.domain.spec.locations.outbound_proxy import SETTING, OutboundProxy
from app.domain.spec.rules.packages import names_of
from config.packages import PackagesSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.uris import shown
from workers.prepare.packages.failures import FIELD
from workers.prepare.packages.request import TORCH_FAMILY, EnvironmentRequest, node_paths
from workers.prepare.packages.requirements_text import requirements_text
from workers.prepare.packages.uv_process import UvProcess, unusable_proxies
from workers.prepare.packages.verified import metadata, skeleton_of, verify
from workers.sandbox.sandbox import Sandbox

ENVIRONMENT = "env"  # in the directory of one environment
_PTH = "zz-trainyard.pth"
_HOOKS = "hooks"  # in the environment: the package that scripts import
_OURS = Path(__file__).parents[3]
_INDEX = "job"  # its name, which is in the variables with its login
_ENTRY_POINT = re.compile(r"([\w.]+):([\w.]+)")
_PROGRAM = re.compile(r"[A-Za-z0-9][\w.-]*")
_TORCH = re.compile(r"\s*torch", re.IGNORECASE)  # all of TORCH_FAMILY
_PUBLIC = "PyPI"
_COMPILE_SECONDS = 300.0
_HURRIED = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "10"}  # a job waits, which a node could start


@dataclass(frozen=True, kw_only=True)
class Builder:
    """What a node builds with; ``fetch_allow`` are private hosts and networks that the operator allows, ``fetch_proxy``
    is the way to public ones, ``software`` directories of its programs, such as other interpreters.
    """

    program: Path
    settings: PackagesSettings
    fetch_allow: tuple[str, ...]
    fetch_proxy: OutboundProxy | None = None
    sandbox: Sandbox
    data_dir: Path
    software: tuple[Path, ...] = ()

    def build(self, request: EnvironmentRequest, directory: Path) -> Path:
        """The environment, in ``directory``; everything else in there is refuse. Raises AttemptFailed.

        Whatever a package can run while it is installed may have written anything into the directory.
        """
        _refuse_proxies(self.fetch_proxy)
        uv, environment, index = self._uv(request, directory), directory / ENVIRONMENT, _index_of(request)
        uv.run(["venv", "--relocatable", "--python", str(request.interpreter.path), str(environment)], index=index)
        _open_node(environment, request)  # before code of a package can run there
        skeleton, install = skeleton_of(environment), self._install(request, directory)
        uv.run(install, index=index)
        verify(environment, skeleton, request.interpreter.minor)
        _check_torch(environment, request)
        return environment

    def compile_modules(self, request: EnvironmentRequest, directory: Path) -> None:
        """Write bytecode into the environment in ``directory``, as far as that goes: ranks can't.

        ``directory`` is one that no build saw. Without ``site``, Python runs no code of packages.
        """
        python = replace(
            self._process(request, directory),
            program=request.interpreter.path,
            until=time.monotonic() + _COMPILE_SECONDS,
        )
        site = directory / ENVIRONMENT / "lib" / f"python{request.interpreter.minor}" / "site-packages"
        with contextlib.suppress(AttemptFailed):  # packages have files that are no modules of this version
            python.run(["-I", "-S", "-m", "compileall", "-q", "-j", "0", str(site)], index=_index_of(request))
        for path in directory.iterdir():
            if path.name != ENVIRONMENT:  # what the sandbox needs
                shutil.rmtree(path, ignore_errors=True)

    def resolve(self, request: EnvironmentRequest, directory: Path) -> None:
        """Ask the index for all that the requirements need, without installing or building. Raises AttemptFailed."""
        _refuse_proxies(self.fetch_proxy)
        uv = self._uv(request, directory)
        uv = replace(uv, variables={**uv.variables, **_HURRIED})
        wanted, left_out = directory / "requirements.txt", directory / "left-out.txt"
        wanted.write_text(requirements_text(request.packages))
        is_named = names_of(request.packages) & set(TORCH_FAMILY)
        left_out.write_text("" if is_named else "".join(f"{name}\n" for name in TORCH_FAMILY))
        command = ["pip", "compile", "--quiet", "--python", str(request.interpreter.path), "--only-binary", ":all:"]
        command += ["--excludes", str(left_out), "-o", str(directory / "resolved.txt"), str(wanted)]
        uv.run(command, index=_index_of(request))

    def _uv(self, request: EnvironmentRequest, directory: Path) -> UvProcess:
        for name in ("home", "tmp"):
            (directory / name).mkdir()
        user, password = request.login
        variables = {"UV_DEFAULT_INDEX": f"{_INDEX}={request.index_url}"} if request.index_url else {}
        if user or password:
            variables |= {f"UV_INDEX_{_INDEX.upper()}_USERNAME": user, f"UV_INDEX_{_INDEX.upper()}_PASSWORD": password}
        return replace(self._process(request, directory), variables=variables)

    def _process(self, request: EnvironmentRequest, directory: Path) -> UvProcess:
        own = urlsplit(self.settings.index_url)
        # An index of the operator's may be in the private network; one of the job's may not.
        is_own = request.index_url == self.settings.index_url
        private = (own.hostname,) if own.hostname and is_own else ()
        return UvProcess(
            program=self.program,
            sandbox=self.sandbox,
            directory=directory,
            data_dir=self.data_dir,
            software=self.software,
            # The files that an index in directories names lie beside it.
            readable=(Path(unquote(own.path)).parent,) if own.scheme == "file" and is_own else (),
            private=(*self.fetch_allow, *private),
            proxy=self.fetch_proxy,
            max_bytes=self.settings.max_bytes,
            until=time.monotonic() + self.settings.build_seconds,
        )

    def _install(self, request: EnvironmentRequest, directory: Path) -> Sequence[str]:
        packages = request.packages
        wanted, left_out = directory / "requirements.txt", directory / "left-out.txt"
        wanted.write_text(requirements_text(packages))
        left_out.write_text("".join(f"{name}\n" for name in request.node_torch))
        python = directory / ENVIRONMENT / "bin" / "python"
        command = ["pip", "install", "--python", str(python), "--link-mode", "hardlink", "-r", str(wanted)]
        command += ["--require-hashes"] if packages.lock else []
        command += [] if packages.allow_source_builds else ["--only-binary", ":all:"]
        command += ["--excludes", str(left_out)] if request.node_torch else []
        return command


def _index_of(request: EnvironmentRequest) -> str:
    """The index, for messages."""
    return f"the index {shown(request.index_url)}" if request.index_url else _PUBLIC


def _refuse_proxies(proxy: OutboundProxy | None) -> None:
    """Raises AttemptFailed."""
    if proxies := unusable_proxies(proxy):
        raise AttemptFailed(
            "PACKAGES_FAILED",
            f"{FIELD}: this node reaches the network through a proxy ({', '.join(sorted(proxies))}), which leads to "
            f"more than an index, and uv may use it no more than jobs may; have the operator name it in {SETTING}, or "
            "name a container image with the packages",
        )


def _open_node(environment: Path, request: EnvironmentRequest) -> None:
    """Let the environment import our hooks, and behind its own packages those of the node."""
    hooks = environment / _HOOKS
    site = environment / "lib" / f"python{request.interpreter.minor}" / "site-packages"
    hooks.mkdir()
    (hooks / "trainyard").symlink_to((_OURS / "trainyard").resolve(), target_is_directory=True)
    paths = [os.path.relpath(hooks, site), *map(str, node_paths(request.interpreter))]
    (site / _PTH).write_text("".join(f"{path}\n" for path in paths))
    for name, module, function in _programs(node_paths(request.interpreter)):
        program = environment / "bin" / name
        if not program.exists():
            call = f'import sys; sys.argv[0] = "{name}"; from {module} import {function}; sys.exit({function}())'
            program.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -P -c \'{call}\' "$@"\n')
            program.chmod(0o755)


def _programs(paths: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    """(name, module, function) of the node's programs, such as torchrun: their own files start the node's Python."""
    from importlib import metadata as installed_packages  # noqa: PLC0415 – slow to import, and most jobs have no packages

    for distribution in installed_packages.distributions(path=[str(path) for path in paths]):
        for entry in distribution.entry_points.select(group="console_scripts"):
            found = _ENTRY_POINT.fullmatch(entry.value.partition("[")[0].strip())
            if found is not None and "." not in found[2] and _PROGRAM.fullmatch(entry.name):
                yield entry.name, found[1], found[2]


def _check_torch(environment: Path, request: EnvironmentRequest) -> None:
    """Refuse packages that need another torch than the node's, which was not installed for them."""
    for package in metadata(environment, request.interpreter.minor):
        for text in package.needs:
            why = _unmet(text, request.node_torch)
            if why:
                raise AttemptFailed(
                    "PACKAGES_FAILED",
                    f"{FIELD}: {package.name} {package.version} needs {why}; name a version of "
                    f"{package.name} that goes with it, or name torch in requirements to install another one",
                )


def _unmet(text: str, versions: dict[str, str]) -> str:
    if not _TORCH.match(text):
        return ""
    try:
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except (InvalidRequirement, ValueError, RecursionError):
        return ""
    name = canonicalize_name(requirement.name)
    if name not in TORCH_FAMILY or name not in versions or not applies:
        return ""
    if requirement.specifier.contains(versions[name], prereleases=True):
        return ""
    return f"{name}{requirement.specifier}, and the node has {name} {versions[name]}"
