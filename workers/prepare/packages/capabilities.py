"""The capabilities of a node that can make package environments, and the versions of Python that they may have."""

from pathlib import Path

from app.domain.spec.frameworks.requirements import PACKAGES, PYTHON
from app.domain.spec.locations.outbound_proxy import OutboundProxy
from app.host.uv import find_uv
from config.packages import PackagesSettings
from workers.prepare.packages.interpreters import others, own_interpreter
from workers.prepare.packages.uv_process import unusable_proxies


def package_capabilities(
    settings: PackagesSettings, software: tuple[Path, ...], proxy: OutboundProxy | None = None
) -> tuple[str, ...]:
    """None where the operator, a missing uv, or a proxy of the machine that isn't ``proxy`` prevents it.

    ``software``: as of ``interpreter_for``.
    """
    if not settings.enabled or find_uv() is None or unusable_proxies(proxy):
        return ()
    found = (own_interpreter(), *others(software))
    return (PACKAGES, *dict.fromkeys(f"{PYTHON}{version}" for each in found for version in (each.minor, each.version)))
