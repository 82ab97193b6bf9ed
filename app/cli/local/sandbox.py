"""The job sandbox on the machine of `trainyard up` and `trainyard demo`: detects or installs bubblewrap."""

import os
import shutil
import subprocess
from collections.abc import Callable

import click

from app.cli.local.command_lines import foreign_environment
from app.domain.nodes.sandboxes import FORBIDDEN, WAYS_OUT
from app.host.bubblewrap import Lack, lack_of_sandbox

INSTALL_SECONDS = 120
# An unreachable mirror must not delay the start for long.
APT = ("apt-get", "-qq", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::Retries=0")
OPTION = "--no-sandbox"

no_sandbox_option = click.option(
    OPTION,
    is_flag=True,
    help="Run jobs as plain processes with all of your permissions; only if you trust every submitter.",
)


def ensure_sandbox(say: Callable[[str], None]) -> Lack | None:
    """Install what is missing of bubblewrap and libseccomp if this is root on Debian; returns what is still lacking."""
    lack = lack_of_sandbox()
    if lack is None or lack.kind == FORBIDDEN or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return lack
    say("Installing bubblewrap, the sandbox of jobs, by apt-get …")
    _install()
    return lack_of_sandbox()


def no_sandbox_message(lack: Lack) -> str:
    """The consequence of a missing sandbox, and how to fix it."""
    return f"Jobs cannot start here: {lack}. Either {WAYS_OUT[lack.kind]}, or accept the risk with {OPTION}."


def _install() -> None:
    environment = {**foreign_environment(os.environ), **_proxies(), "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "bubblewrap", "libseccomp2"]):
        try:
            subprocess.run(
                [*APT, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            click.echo(f"apt-get failed: {type(error).__name__}", err=True)
            return


def _proxies() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy")}
