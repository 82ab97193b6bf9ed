"""Logins of Git servers that the operator stores for projects, for jobs whose code is in a private repository."""

import re
from pathlib import Path

from app.domain.errors import BadSpec
from app.domain.spec.credentials import HOST, PASSWORD, TOKEN, USER, check_code_credentials
from app.domain.spec.locations.code import git_commit, is_git
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import CODE_LOGIN
from app.security.permissions import Caller
from app.services.access.secret_files import GIT_LOGINS, present_values

# An IPv6 address is no name of a file here, and in that of a file an underscore begins the port.
_HOST = re.compile(r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?")


def with_stored_login(
    directory: Path | None, caller: Caller, rules: ReadingRules, document: JobDocument
) -> JobDocument:
    """A document with code in a repository, and nothing that opens it, with the project's login for the host.

    It stays as it is for a caller from elsewhere, whom a later check refuses, and where there is no such login.

    The name of the file is the host that the login is sent to. ``rules`` are those of the project. Raises BadSpec for a
    stored file that can't be read or used.
    """
    framework = document.training_config.framework
    location = framework.custom_code_dir or ""
    if directory is None or not is_git(location) or framework.custom_code_credentials:
        return document
    host = _host(location)
    if not host or not caller.sees(rules.project):
        return document
    file = host.replace(":", "_")
    stored = present_values(directory, rules.project, GIT_LOGINS, {TOKEN: (file,)}, field=CODE_LOGIN).get(TOKEN)
    if stored is None:
        return document
    user, colon, password = stored.partition(":")
    login = {HOST: host, **({USER: user, PASSWORD: password} if colon else {TOKEN: stored})}
    try:
        check_code_credentials(login, location, field=CODE_LOGIN)
    except BadSpec as error:
        raise BadSpec(
            f"the operator's file {rules.project}/{GIT_LOGINS}/{file} below TRAINYARD_SECURITY_SECRETS_DIR, for "
            f"repositories of {host}, has to be a token, or a user and a password with a colon between them: "
            f"{error.message}",
            field=CODE_LOGIN,
        ) from error
    framework = framework.changed(custom_code_credentials=login)
    return document.changed(training_config=document.training_config.changed(framework=framework))


def _host(location: str) -> str:
    """The host of a repository, with a port that is not 443; empty where the location is malformed."""
    try:
        host = git_commit(location, field="").host
    except BadSpec:
        return ""  # the rule about code says what is wrong
    return host if _HOST.fullmatch(host) else ""
