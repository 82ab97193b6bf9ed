"""Settings for container images of jobs: where they may come from, and how much of a node's disk they take."""

from dataclasses import dataclass
from pathlib import Path

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    sources: tuple[str, ...] = setting(
        (),
        "comma-separated registries and repositories from which jobs may use images, such as docker.io/pytorch or "
        "registry.example/teams/{project}; empty: images in the storage roots only",
    )
    require_digest: bool = setting(False, "images of registries must be named with their digest (@sha256:…)")
    auth_file: str = setting(
        "", "file with the logins of registries, as of `docker login`; {project} in its path names the job's project"
    )
    plain_http: tuple[str, ...] = setting((), "comma-separated registries (HOST:PORT) that are read without TLS")
    max_bytes: int = setting(64 * 1024**3, "size of one image, unpacked, at most", rules.at_least_one)
    cache_bytes: int = setting(
        200 * 1024**3,
        "size of a node's unpacked images; least recently used ones that no job uses are deleted first",
        rules.at_least_one,
    )
    fetch_seconds: float = setting(3600.0, "longest time that fetching and unpacking one image may take")

    def auth_file_of(self, project: str) -> Path | None:
        return Path(self.auth_file.replace("{project}", project)).expanduser() if self.auth_file else None
