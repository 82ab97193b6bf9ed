"""Fetches one commit of a Git repository as a tar archive: `git+https://host/repository.git@<commit>`.

Git runs with a configuration of its own, over HTTPS alone, and through a proxy that checks each address. It has limits
for memory, time and the size of files, because a small pack may ask for any amount. Nothing is checked out, so neither
hooks nor filters run, and submodules stay empty. What opens a private repository is a header for its server alone,
which git gets in its environment; redirections are then refused, since git would send the header on.
"""

import base64
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from app.domain.errors import BadSpec
from app.domain.spec.credentials import HOST, PASSWORD, TOKEN, USER
from app.domain.spec.locations.code import MOST_BYTES, MOST_FILES, GitCommit, git_commit
from app.host.processes import die_with_parent
from config.redaction import Redaction
from workers.fetching.cache import CacheEntry, stored_bytes
from workers.fetching.child.client import child_environment
from workers.fetching.code.connect_proxy import ConnectProxy
from workers.fetching.context import Context, fetched, reader_of, refuse_larger, target_of
from workers.fetching.failures import FetchFailed, FetchRefused, FetchTooLarge, HubUnreachable, NotThere, Trouble
from workers.fetching.items import FetchedFile, Item
from workers.fetching.outbound import outbound_proxy
from workers.fetching.uris import shown

NAME = "code.tar"
_ANY_USER = "x-access-token"  # servers that take tokens as passwords look at no user, or at one with no special meaning
_NOT_PUBLIC = (
    "the repository does not exist, or is not public; put what opens a private one into custom_code_credentials, or "
    "upload the code with `trainyard submit --code DIR`"
)
_NOT_OPENED = (
    "the repository does not exist, or custom_code_credentials don't open it: look whether they may read it, and have "
    "not expired; some servers want the user of a token, too"
)
_PRIVATE = ("could not read Username", "Authentication failed", "terminal prompts disabled", "not found")
_NO_ANSWER = "unable to access"  # what comes of the transport; with a status, the server did answer
_STATUS = re.compile(r"returned error: (\d{3})")
_PASSING = frozenset({408, 425, 429})  # of the answers 4xx
_UNKNOWN = ("not our ref", "unadvertised object", "couldn't find remote ref", "bad object")
_TOO_MUCH = re.compile(r"[Oo]ut of memory|mmap failed|CPU time limit|took longer than|died of signal (?!9\b|15\b)")
_MEMORY_BYTES = 1 << 30
_CPU_SECONDS = 600
_SECONDS = 3600.0  # of one command
_REPOSITORY_TIMES = 4  # the size of a commit's objects, of that of the code: #subdirectory takes a part
_HEADERS_BYTES = 64 << 20  # of an archive
_LONGEST_ENTRY = 16384
_PIECE_BYTES = 1 << 16
_CONFIGURATION = {
    "credential.helper": "",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "init.templateDir": "",
    "fetch.recurseSubmodules": "no",
    "fetch.fsckObjects": "false",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "120",
    # One file, which its limit of size bounds, and large objects are streamed.
    "fetch.unpackLimit": "1",
    "core.bigFileThreshold": "16m",
    "pack.threads": "1",
}
# Of the tree as it is in the commit: what it says about archives of itself has no effect.
_ATTRIBUTES = "* -export-ignore -export-subst -text -ident -filter -working-tree-encoding\n"


def fetch(context: Context, item: Item) -> list[FetchedFile]:
    """One file, the archive. Raises FetchFailed."""
    try:
        wanted = git_commit(item.location, field="")
    except BadSpec as error:
        raise FetchRefused(error.message) from error
    cache, target = context.cache, target_of(item, NAME)
    key = f"git {wanted.url} {wanted.commit} {wanted.directory}{reader_of(item)}"
    with cache.alone(key):
        known = cache.entry(key)
        if known is not None and cache.link(known.sha256, target) is not None:
            return [fetched(item, NAME, known.sha256)]
        with cache.scratch(0) as scratch, context.heart.watching(lambda: stored_bytes(scratch)):
            part = _archive(context, item, wanted, scratch)
            size = part.stat().st_size
            refuse_larger(item, size)
            cache.make_room(size)
            sha256 = cache.adopt(part, target)
        cache.remember(key, CacheEntry(location=shown(item.location), version=wanted.commit, sha256=sha256, size=size))
    return [fetched(item, NAME, sha256)]


def _archive(context: Context, item: Item, wanted: GitCommit, scratch: Path) -> Path:
    program = shutil.which("git")
    if program is None:
        raise FetchRefused(
            "git is not installed on this node; install it there, or upload the code with `trainyard submit --code DIR`"
        )
    repository = scratch / "repository"
    most = min(context.settings.max_bytes, _REPOSITORY_TIMES * item.max_bytes)
    with ConnectProxy(context.settings.allow, outbound_proxy(context.settings)) as proxy:
        git = _Git(program, scratch, proxy.url, most, _login(wanted, item.credentials))
        git.run("init", "--quiet", "--bare", str(repository))
        (repository / "info").mkdir(exist_ok=True)
        (repository / "info/attributes").write_text(_ATTRIBUTES)
        arguments = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", wanted.url, wanted.commit)
        failure = git.run("-C", str(repository), *arguments)
        if failure:
            failure = _redaction(item.credentials)(failure)  # before a part of it is taken
            if proxy.trouble:
                raise HubUnreachable(f"the repository can't be reached: {proxy.trouble}")
            is_ours, has_login = most == context.settings.max_bytes, bool(item.credentials)
            raise _why(failure, wanted, most, refused=proxy.refused, is_ours=is_ours, has_login=has_login)
    return _archived(_Git(program, scratch, "", item.max_bytes + _HEADERS_BYTES), item, wanted, scratch)


def _login(wanted: GitCommit, credentials: Mapping[str, str]) -> dict[str, str]:
    """Git's settings that open the repository; none without credentials.

    Raises FetchRefused for those of another host.
    """
    if not credentials:
        return {}
    if credentials.get(HOST, wanted.host) != wanted.host:
        raise FetchRefused(f"custom_code_credentials are for another host than {wanted.host}, and are not sent there")
    header = f"Authorization: Basic {_basic(credentials)}"
    return {f"http.{wanted.origin}/.extraHeader": header, "http.followRedirects": "false"}


def _basic(credentials: Mapping[str, str]) -> str:
    """As RFC 7617 says."""
    user, password = credentials.get(USER, _ANY_USER), credentials.get(PASSWORD) or credentials[TOKEN]
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def _redaction(credentials: Mapping[str, str]) -> Redaction:
    """A server may send back what it was sent."""
    if not credentials:
        return Redaction()
    return Redaction((credentials.get(PASSWORD) or credentials[TOKEN], _basic(credentials)))


def _archived(git: "_Git", item: Item, wanted: GitCommit, scratch: Path) -> Path:
    """The commit, or its directory. Its tree is counted first: few objects may be any number of files."""
    part = scratch / "archive"
    tree = f"{wanted.commit}:{wanted.directory}" if wanted.directory else wanted.commit
    where = ("-C", str(scratch / "repository"))
    counted = _Counted(item.max_bytes)
    failure = git.run(*where, "ls-tree", "-r", "-t", "-l", "-z", tree, on_output=counted.take)
    if counted.excess:
        kind = FetchTooLarge if item.max_bytes < MOST_BYTES else FetchRefused
        raise kind(f"the commit has {counted.excess}; name a part of it with #subdirectory=path")
    failure = failure or git.run(*where, "archive", "--format=tar", f"--output={part}", tree)
    if "File too large" in failure or _TOO_MUCH.search(failure):
        raise _too_much(failure)
    if failure and wanted.directory:
        raise NotThere(f"the commit {wanted.commit} has no directory {wanted.directory}: {_last(failure)}")
    if failure:
        raise FetchRefused(f"git cannot archive the commit: {_last(failure)}")
    return part


class _Counted:
    """Reads what `git ls-tree -l -z` prints; ``excess`` says which limit the tree exceeds."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries = self._bytes = 0
        self._rest = b""
        self.excess = ""

    def take(self, output: bytes) -> bool:
        """Whether to read more."""
        *entries, self._rest = (self._rest + output).split(b"\0")
        for entry in entries:
            size = entry.partition(b"\t")[0].split()[-1]
            self._bytes += int(size) if size.isdigit() else 0
        self._entries += len(entries)
        if self._entries > MOST_FILES:
            self.excess = f"more than {MOST_FILES:,} files and directories, the most that code may have"
        elif self._bytes > self._max_bytes:
            self.excess = f"more than {self._max_bytes:,} bytes of files, the most allowed"
        elif len(self._rest) > _LONGEST_ENTRY:
            self.excess = "a path that is too long"
        return not self.excess


class _Git:
    """Git without this machine's configuration, environment and secrets."""

    def __init__(
        self, program: str, home: Path, proxy: str, most_bytes: int, login: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """``login``: settings that open a repository."""
        self._program, self._most_bytes = program, most_bytes
        through = {"http.proxy": proxy, "http.proxyAuthMethod": "basic"} if proxy else {}
        configuration = {**_CONFIGURATION, **through, **login}
        inherited = child_environment()
        passed_on: dict[str, str] = {
            name: inherited[name] for name in ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR") if name in inherited
        }
        if certificates := passed_on.get("SSL_CERT_FILE"):
            passed_on["GIT_SSL_CAINFO"] = certificates
        self._environment = {
            **passed_on,
            "HOME": str(home),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ALLOW_PROTOCOL": "https",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_CONFIG_COUNT": str(len(configuration)),
            **{f"GIT_CONFIG_KEY_{i}": name for i, name in enumerate(configuration)},
            **{f"GIT_CONFIG_VALUE_{i}": value for i, value in enumerate(configuration.values())},
        }

    def run(self, *arguments: str, on_output: Callable[[bytes], bool] = lambda _: True) -> str:
        """What it said if it failed, else nothing. ``on_output`` takes its output, and ends it by returning False."""
        is_late, said = threading.Event(), bytearray()
        with subprocess.Popen(
            [self._program, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # git has children of its own
            preexec_fn=_limited(os.getpid(), self._most_bytes),  # noqa: PLW1509 – system calls only
        ) as process:
            assert process.stdout is not None  # noqa: S101 – for the type checker: both are pipes
            assert process.stderr is not None  # noqa: S101
            late = threading.Timer(_SECONDS, _end, [process, is_late])
            listener = threading.Thread(target=_listen, args=(process.stderr, said), daemon=True)
            try:
                late.start()
                listener.start()
                while output := os.read(process.stdout.fileno(), _PIECE_BYTES):
                    if not on_output(output):
                        break
                else:
                    listener.join()
                    process.wait()
            finally:
                late.cancel()
                _end(process)
        text, code = said.decode(errors="replace"), process.returncode
        if is_late.is_set():
            return f"it took longer than {_SECONDS:g} s"
        if code < 0:
            return f"{text}\nit died of signal {-code}"
        return "" if code == 0 else text or f"it ended with {code}"


def _listen(pipe: IO[bytes], said: bytearray) -> None:
    """Keeps the last part of what it says."""
    while piece := os.read(pipe.fileno(), _PIECE_BYTES):
        said += piece
        del said[:-_PIECE_BYTES]


def _end(process: subprocess.Popen[bytes], is_late: threading.Event | None = None) -> None:
    """Kill it with its children, unless it has ended."""
    if process.poll() is not None:
        return
    if is_late is not None:
        is_late.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _limited(parent: int, most_bytes: int) -> Callable[[], None]:
    def prepare() -> None:
        die_with_parent(parent)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that it says that a file is too large
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare


def _too_much(said: str) -> FetchRefused:
    return FetchRefused(
        f"git needs more memory, time or room for the commit than is allowed here: {_last(said)}; upload the code with "
        "`trainyard submit --code DIR`"
    )


def _why(
    said: str, wanted: GitCommit, most_bytes: int, *, refused: bool, is_ours: bool, has_login: bool = False
) -> FetchFailed:
    if refused:
        return FetchRefused(
            "its host leads to a private address; have the administrator list the host in TRAINYARD_FETCH_ALLOW"
        )
    if any(each in said for each in _UNKNOWN):
        return NotThere(
            f"the repository has no commit {wanted.commit}, or its server does not give out single commits; push it, "
            "or upload the code with `trainyard submit --code DIR`"
        )
    status = int(found[1]) if (found := _STATUS.search(said)) else 0
    if has_login and 300 <= status < 400:
        return FetchRefused(
            "the server leads elsewhere, where custom_code_credentials are not sent; name the address that it leads "
            "to, such as one that ends in .git"
        )
    if any(each in said for each in _PRIVATE) or (400 <= status < 500 and status not in _PASSING):
        return NotThere(_NOT_OPENED if has_login else _NOT_PUBLIC)
    if "File too large" in said:
        limit = "TRAINYARD_FETCH_MAX_BYTES" if is_ours else f"{_REPOSITORY_TIMES} times what code may have"
        return FetchRefused(f"the commit's repository has more than {most_bytes} bytes ({limit})")
    if _TOO_MUCH.search(said):
        return _too_much(said)
    if _NO_ANSWER in said and not status:
        return HubUnreachable(f"the repository does not answer, or the connection to it broke: {_last(said)}")
    return Trouble(f"git cannot fetch the commit: {_last(said)}")


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else "it says nothing")[:300]
