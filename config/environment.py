"""What the environment says that is no setting: what client commands read, without the classes of all settings, which
take as long to import as everything else of a command.
"""

import os
from collections.abc import Mapping
from pathlib import Path

# The submitting user's own tokens for storage: variable → service.
TOKEN_VARIABLES = {
    "TRAINYARD_SCAIDRIVE_TOKEN": "scaidrive",
    "TRAINYARD_SCAIATLAS_TOKEN": "scaiatlas",
    "TRAINYARD_USER_TOKEN": "user",
}
COMPLETION_VARIABLE = "_TRAINYARD_COMPLETE"  # click's: _PROGRAM_COMPLETE
CLIENT_VARIABLES = frozenset({"TRAINYARD_URL", "TRAINYARD_API_KEY", *TOKEN_VARIABLES})


def client_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """(URL, API key) for client commands from the environment; empty strings when unset."""
    env = os.environ if environ is None else environ
    return env.get("TRAINYARD_URL", ""), env.get("TRAINYARD_API_KEY", "")


def completes_a_word(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a shell asks, by click's protocol, for what could complete a word of a command."""
    env = os.environ if environ is None else environ
    return COMPLETION_VARIABLE in env


def user_cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where client commands keep what they can fetch again: the cache directory of the user, as XDG says."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard"


def client_tokens(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's tokens for storage from the environment, by service, for client commands."""
    env = os.environ if environ is None else environ
    return {name: env[variable] for variable, name in TOKEN_VARIABLES.items() if env.get(variable)}


def user_environment() -> Mapping[str, str]:
    """All variables of the environment, which a user may name in documents as ${NAME}."""
    return os.environ
