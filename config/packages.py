"""Settings for package environments of jobs: where packages come from, and how much of a node's disk they take."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class PackagesSettings:
    enabled: bool = setting(True, "jobs may ask for packages (training_config.packages)")
    index_url: str = setting(
        "",
        "index of packages for jobs that name none, the same on coordinators and nodes, http(s):// or file://; it may "
        "be in a private network; empty: PyPI",
    )
    build_seconds: float = setting(900.0, "longest time that building one package environment may take")
    max_bytes: int = setting(
        10 * 1024**3, "size of one package environment with its downloads, at most", rules.at_least_one
    )
    cache_bytes: int = setting(
        50 * 1024**3,
        "size of a node's package environments; least recently used ones that no job uses are deleted first",
        rules.at_least_one,
    )
