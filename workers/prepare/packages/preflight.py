"""Preflight of a job's packages: whether their index has all that they need, before a device is taken."""

import re
from collections.abc import Mapping
from dataclasses import replace

from app.domain.spec.locations.outbound_proxy import SETTING
from app.domain.spec.model import JobDocument
from app.domain.spec.packages import Packages
from app.domain.spec.rules.packages import packages_of
from app.host.uv import find_uv
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.fetching.directory_locks import DirectoryLock, sweep
from workers.fetching.outbound import outbound_proxy
from workers.prepare.inspection_report import Report
from workers.prepare.packages.build import Builder
from workers.prepare.packages.interpreters import interpreter_for
from workers.prepare.packages.job_packages import login_of
from workers.prepare.packages.request import EnvironmentRequest
from workers.prepare.packages.uv_process import UvUnfinished, unusable_proxies
from workers.sandbox.sandbox import SandboxUnavailable, choose_sandbox

_DIRECTORY = "packages-preflight"  # in the directory of runs
_SECONDS = 60.0
_MOST_BYTES = 256 << 20  # of what the index says about the packages
# What another machine may see in another way: its Python, its processor, its way to the index.
_OF_A_MACHINE = re.compile(
    r"\bwheels?\b|\bABI\b|\bplatform\b|\bPython ?[<>=!~]|\bPython version|private address|No interpreter found"
)
_REFUSED_LOGIN = re.compile(r"refuses this job")


def inspect_packages(
    settings: Settings, document: JobDocument, environment: Mapping[str, str], seconds: float
) -> Report:
    """Ask the index; ``environment`` are the job's variables. Whatever a node may see in another way is left to it."""
    packages, uv = packages_of(document), find_uv()
    if packages is None:
        return {}
    if uv is None or not settings.packages.enabled:
        return _left("uv is missing here, or TRAINYARD_PACKAGES_ENABLED is false")
    if unusable_proxies(outbound_proxy(settings.fetch)):
        return _left(f"it reaches the network through a proxy that is not in {SETTING}")
    try:
        sandbox = choose_sandbox(settings.node.sandbox)
        interpreter = interpreter_for(packages.python, settings.node.software)
    except SandboxUnavailable as error:
        return _left(str(error))
    except AttemptFailed:
        return _left(f"there is no Python {packages.python} here")
    request = EnvironmentRequest(
        packages=packages,
        interpreter=interpreter,
        index_url=packages.index_url or settings.packages.index_url,
        project="",
        uv=uv.version,
        login=login_of(packages, environment),
    )
    limits = replace(settings.packages, build_seconds=min(seconds, _SECONDS), max_bytes=_MOST_BYTES)
    builder = Builder(
        program=uv.path,
        settings=limits,
        fetch_allow=settings.fetch.allow,
        fetch_proxy=outbound_proxy(settings.fetch),
        sandbox=sandbox,
        data_dir=settings.data.dir.resolve(),
        software=settings.node.software,
    )
    return _resolved(builder, request)


def _resolved(builder: Builder, request: EnvironmentRequest) -> Report:
    scratch = builder.data_dir / "run" / _DIRECTORY
    sweep(scratch)
    with DirectoryLock(scratch, "packages") as work:
        try:
            builder.resolve(request, work.path)
        except UvUnfinished:
            return _left("the index did not say in time what they need")
        except AttemptFailed as failure:
            if _may_differ(failure, request.packages):
                return _left(failure.message)
            return {"errors": [{"error_type": failure.error_type, "message": failure.message}]}
    return {"packages": {"requirements": list(request.packages.requirements)}}


def _may_differ(failure: AttemptFailed, packages: Packages) -> bool:
    """Whether a node may have what was not found here."""
    if failure.error_type != "PACKAGES_FAILED" or _OF_A_MACHINE.search(failure.message):
        return True
    # Without an index of the job's own, the login is this machine's.
    return not packages.index_url and _REFUSED_LOGIN.search(failure.message) is not None


def _left(why: str) -> Report:
    return {"left_out": [f"this coordinator has not resolved the packages: {why}"]}
