"""Settings for fetching models and data by URI, and for the cache that stores them."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class FetchSettings:
    allow: tuple[str, ...] = setting((), "comma-separated private hosts or networks that URIs may name")
    proxy: str = setting(
        "",
        "HTTP proxy, as http://host:port, through which models, data, code and packages of public hosts are fetched; "
        "empty: none",
        rules.http_url,
    )
    proxy_user: str = setting("", "user name for the proxy; empty: no login")
    proxy_secret: str = setting("", "password for the proxy")
    no_proxy: tuple[str, ...] = setting(
        (), "comma-separated hosts, domains such as .example.org, and networks that are reached without the proxy"
    )
    max_bytes: int = setting(
        200 * 1024**3, "largest data source or model that is fetched, all its files together", rules.at_least_one
    )
    max_files: int = setting(10_000, "maximum number of files that one directory or glob may match", rules.at_least_one)
    max_seconds: float = setting(21_600.0, "longest time that fetching one data source or model may take")
    stalled_seconds: float = setting(300.0, "a download that receives nothing for this long is aborted")
    max_redirects: int = setting(5, "maximum number of redirects per download", rules.not_negative)
    pvc_dir: Path | None = setting(
        None,
        "directory with a directory for each project, in which each of its pvc:// claims is a directory; empty: "
        "`files/pvc` of the data directory",
    )
    pvc_shared: tuple[str, ...] = setting(
        (), "comma-separated pvc:// claims of all projects, which are directories beside those of the projects"
    )
    pvc_shared_writable: tuple[str, ...] = setting(
        (), "comma-separated claims of TRAINYARD_FETCH_PVC_SHARED that jobs of all projects may write to"
    )
    oci_dir: Path | None = setting(
        None,
        "directory in which each oci:// bucket is a directory, not a service; empty: the service, else `files/oci`",
    )
    obs_dir: Path | None = setting(
        None,
        "directory in which each obs:// bucket is a directory, not a service; empty: the service, else `files/obs`",
    )
    s3_endpoint: str = setting("", "URL of the service behind s3://; empty: Amazon's", rules.http_url)
    s3_region: str = setting("", "its region")
    s3_key: str = setting("", "its access key; empty: anonymous access to public data")
    s3_secret: str = setting("", "its secret key")
    s3_buckets: tuple[str, ...] = setting((), "comma-separated buckets that s3:// may name; empty: all")
    oci_endpoint: str = setting("", "S3-compatible URL of the service behind oci://", rules.http_url)
    oci_region: str = setting("", "its region")
    oci_key: str = setting("", "its access key")
    oci_secret: str = setting("", "its secret key")
    oci_buckets: tuple[str, ...] = setting((), "comma-separated buckets that oci:// may name; empty: all")
    obs_endpoint: str = setting("", "S3-compatible URL of the service behind obs://", rules.http_url)
    obs_region: str = setting("", "its region")
    obs_key: str = setting("", "its access key")
    obs_secret: str = setting("", "its secret key")
    obs_buckets: tuple[str, ...] = setting((), "comma-separated buckets that obs:// may name; empty: all")
    ipfs_gateway: str = setting("", "URL of the gateway through which ipfs:// is read", rules.http_url)
    scaidrive_url: str = setting("", "URL below which scaidrive:// shares lie", rules.http_url)
    scaiatlas_url: str = setting("", "URL below which scaiatlas:// shares lie", rules.http_url)
    token_exchange_url: str = setting(
        "",
        "RFC 8693 endpoint that exchanges a submitting user's token for one for scaidrive or scaiatlas",
        rules.http_url,
    )
    token_exchange_client: str = setting("", "client id for the token exchange")
    token_exchange_secret: str = setting("", "client secret for the token exchange")

    def directory_of(self, scheme: str) -> Path | None:
        """The directory with a subdirectory per claim or bucket of the scheme; None when the scheme uses a remote
        service.
        """
        found: Path | None = getattr(self, f"{scheme}_dir", None)
        return found

    def contradictions(self) -> list[str]:
        """What is wrong with these settings together."""
        problems = []
        if unknown := sorted({*self.pvc_shared_writable} - {*self.pvc_shared}):
            names = ", ".join(unknown)
            problems.append(f"TRAINYARD_FETCH_PVC_SHARED_WRITABLE: {names}: name it in TRAINYARD_FETCH_PVC_SHARED, too")
        problems += self._problems_of_proxy()
        for scheme in ("s3", "oci", "obs"):
            if bool(getattr(self, f"{scheme}_key")) != bool(getattr(self, f"{scheme}_secret")):
                names = f"TRAINYARD_FETCH_{scheme.upper()}_KEY and TRAINYARD_FETCH_{scheme.upper()}_SECRET"
                problems.append(f"{names}: set both or neither")
        return problems

    def _problems_of_proxy(self) -> Iterator[str]:
        if self.proxy and not _is_proxy(self.proxy):
            yield "TRAINYARD_FETCH_PROXY: expected http://HOST:PORT, port 1 to 65535; TLS is tunnelled by CONNECT"
        if self.proxy_user and not self.proxy:
            yield "TRAINYARD_FETCH_PROXY_USER: set TRAINYARD_FETCH_PROXY, too"
        if self.proxy_secret and not self.proxy_user:
            yield "TRAINYARD_FETCH_PROXY_SECRET: set TRAINYARD_FETCH_PROXY_USER, too"
        if ":" in self.proxy_user:
            yield "TRAINYARD_FETCH_PROXY_USER: must not contain a colon; the password is TRAINYARD_FETCH_PROXY_SECRET"
        # Clients encode other characters of a login differently.
        for name in ("proxy_user", "proxy_secret"):
            text = getattr(self, name)
            if not (text.isascii() and text.isprintable()):
                yield f"TRAINYARD_FETCH_{name.upper()}: expected printable ASCII characters"
        if wrong := [entry for entry in self.no_proxy if not _is_direct(entry)]:
            yield (
                f"TRAINYARD_FETCH_NO_PROXY: {', '.join(wrong)}: expected hosts, domains such as .example.org, or "
                "networks such as 10.0.0.0/8, without ports or *"
            )


def _is_proxy(url: str) -> bool:
    parts = urlsplit(url)
    try:
        return parts.scheme == "http" and parts.path in ("", "/") and parts.port != 0
    except ValueError:  # the port is no number, or too large
        return False


def _is_direct(entry: str) -> bool:
    if "/" not in entry and ":" not in entry:
        return re.fullmatch(r"\.?\w(?:[\w.-]*\w)?", entry) is not None
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    max_bytes: int = setting(
        500 * 1024**3,
        "size of a node's cache of models, data and tokens; least recently used entries are evicted first",
        rules.at_least_one,
    )
