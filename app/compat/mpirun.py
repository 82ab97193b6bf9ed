"""Command lines of Open MPI's mpirun → what each rank runs, and how many ranks there are. Pure.

The platform starts mpirun itself: it knows nodes and slots, and places the ranks. An option that asks for the same is
left out, one that asks for something else is refused, and one that changes no result has a warning.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.compat.mpirun_texts import ASSIGNED, CONTINUED, WORD, is_in, is_mpirun, without_quotes
from app.domain.errors import BadSpec
from app.domain.spec.frameworks.custom import MPI, PROCESSES, launcher
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.training import is_reserved

_ENV = "env"
_PARAMETER = "OMPI_MCA_"  # begins the variables by which parameters are set
# Where ranks start; `cd -` needs a directory that they have not been in.
_CD = re.compile(rf"\s*cd[ \t]+(?!-)(?:{WORD.pattern})[ \t]*(?:&&|;|\n)\s*", re.DOTALL)
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
# What has another value, or another effect, each time that a shell reads it; in single quotes no shell does.
_EACH_TIME = re.compile(
    r"\$[(\[$]|`|\$\{?(?:S?RANDOM|BASHPID|PPID|SECONDS|EPOCHSECONDS|EPOCHREALTIME|HOSTNAME)(?![A-Za-z0-9_])"
)
_LITERAL = re.compile(r"""\\.|'[^']*'|("(?:[^"\\]|\\.)*")""", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_PER_NODE = re.compile(r"ppr:([0-9]+):node(?::.*)?", re.IGNORECASE)
# Of host files that other platforms write, and of their number of processes: both are what the platform knows.
_HOST_FILE = re.compile(r"/etc/mpi/hostfile|\$\{?(?:OMPI_MCA_orte_default_hostfile|OPENMPI_HOST_FILE_PATH)\}?")
_ALL_SLOTS = re.compile(r"\$\{?OPENMPI_NP\}?")
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1)(?::([0-9]{1,9}))?")
# Parameters of mpirun and its daemons, and those by which the platform has ranks reach each other.
_OF_THE_PLATFORM = re.compile(
    r"(?:plm|ras|rmaps|rml|routed|oob|odls|orte|prte|ess|state|grpcomm|iof|errmgr|filem|hwloc|pmix)(?:_.*)?"
    r"|btl_tcp_(?:if|port)_.*|btl_vader_single_copy_mechanism|(?:btl_vader|osc_sm|osc_rdma)_backing_directory"
    r"|if_base_.*"
)
_PLACES = "the platform places ranks: those of a node follow each other, and none is bound to a core"
_LOGS = "each rank has a log of its own"
_OWN_MPI = "Open MPI is that of the node"
_SAME = frozenset({"allow-run-as-root", "oversubscribe", "byslot", "bind-to-none", "nolocal", "noprefix", "q", "quiet"})
_FLAGS = {
    **dict.fromkeys(("bynode", "nooversubscribe", "bind-to-core", "bind-to-socket", "use-hwthread-cpus"), _PLACES),
    **dict.fromkeys(("tag-output", "timestamp-output", "merge-stderr-to-stdout", "report-bindings"), _LOGS),
    **dict.fromkeys(("display-map", "display-allocation", "v", "verbose"), _LOGS),
}
_IGNORED = {
    "output-filename": _LOGS,
    "prefix": _OWN_MPI,
    "path": _OWN_MPI,
    "timeout": "the time limit of the job counts",
}
_DIRECTORY = "ranks start in the directory of the job; leave it out"
_FILES = "files of parameters are not read; write --mca NAME VALUE for each"
_REFUSED = {"wdir": _DIRECTORY, "wd": _DIRECTORY, "tune": _FILES, "am": _FILES}
_SAME_PLACES = {"map-by": "slot", "rank-by": "slot", "bind-to": "none"}


class _Word(NamedTuple):
    """``raw`` is how a shell reads it, at ``start`` of the text."""

    value: str
    raw: str
    start: int = 0


class MpirunOptions(NamedTuple):
    """``processes``: of all nodes; ``per_node`` is empty and ``processes`` None unless they are set.

    ``variables``: NAME=VALUE, as they are written; ``ignored``: why an option has no effect. ``hosts`` names machines.
    """

    processes: int | None
    per_node: str
    hosts: str
    variables: list[str]
    ignored: list[str]


class OfText(NamedTuple):
    """``text``: what a shell runs in each rank; None: mpirun is only a part of the text."""

    text: str | None
    options: MpirunOptions


_PART = OfText(None, MpirunOptions(None, "", "", [], []))


def of_words(words: Sequence[str], field: str) -> tuple[list[str], MpirunOptions] | None:
    """The command of a rank, and the options before it; None where another program starts. Raises BadSpec.

    What `env NAME=VALUE` sets before mpirun is set for the ranks.
    """
    found = [_Word(word, word) for word in words]
    variables, at = _of_env(found, 0)
    if at == len(found) or not is_mpirun(found[at].value):
        return None
    options, rest = _parsed(found[at + 1 :], field, variables)
    command = [word.value for word in rest]
    return (["env", *options.variables, *command] if options.variables else command), options


def of_text(text: str, field: str) -> OfText | None:
    """What a shell's text starts; None where it does not start mpirun. Raises BadSpec.

    Before mpirun there may be `cd DIRECTORY &&`, variables, `exec` and `env`: they hold for each rank. So what a shell
    makes anew each time that it reads it, such as `$(date)` or `$RANDOM`, leaves the text as it is.
    """
    text = text.lstrip()
    start = _after_cd(text)
    words, is_whole = _words_of(text, start)
    at = next((number for number, word in enumerate(words) if not ASSIGNED.match(word.raw)), len(words))
    assigned, at = words[:at], at + (at < len(words) and words[at].value == "exec")
    variables, at = _of_env(words, at)
    if at == len(words) or not is_mpirun(words[at].value) or not is_whole:
        return _PART if is_in(text) else None
    options, rest = _parsed(words[at + 1 :], field, variables)
    kept = [word.raw for word in assigned if _why_not(word) is None]
    if any(map(_is_made_each_time, (text[:start], *kept, *options.variables, *(word.raw for word in rest)))):
        return _PART
    own = text[rest[0].start : rest[-1].start + len(rest[-1].raw)] if rest else ""
    set_before = ["env", *options.variables] if own and options.variables else []
    options.ignored.extend(why for word in assigned if (why := _why_not(word)) is not None)
    return OfText(text[:start] + " ".join([*kept, *set_before, own]) if own else "", options)


def _is_made_each_time(text: str) -> bool:
    read = _LITERAL.sub(lambda match: _ESCAPED.sub(" ", match[1]) if match[1] else " ", text)
    return _EACH_TIME.search(read) is not None


def _after_cd(text: str) -> int:
    at = 0
    while match := _CD.match(text, at):
        at = match.end()
    return at


def _of_env(words: Sequence[_Word], at: int) -> tuple[list[_Word], int]:
    """The variables that env sets, if it starts there, and where its program does."""
    if at == len(words) or words[at].value.rpartition("/")[2] != _ENV:
        return [], at
    end = next((number for number in range(at + 1, len(words)) if not ASSIGNED.match(words[number].value)), len(words))
    return list(words[at + 1 : end]), end


def _why_not(word: _Word) -> str | None:
    """Why a variable that is set before mpirun is not set for the ranks."""
    name = word.value.partition("=")[0]
    if is_reserved(name):
        return f"{name[:64]}: the platform sets this variable"
    if name.startswith(_PARAMETER) and _OF_THE_PLATFORM.fullmatch(name.removeprefix(_PARAMETER)):
        return f"{name[:64]}: the platform sets how mpirun starts and connects ranks"
    return None


def mpirun_of(document: JobDocument) -> list[str]:
    """What stands before the command of a native job in other vocabularies; nothing where the platform starts it."""
    if launcher(document) != MPI:
        return []
    each = str(document.training_config.framework.distributed.config.get(PROCESSES, ""))
    if not each.isdecimal():
        return ["mpirun"]
    return ["mpirun", "-np", str(int(each) * document.resource_config.node_count)]


def _words_of(text: str, start: int) -> tuple[list[_Word], bool]:
    """The words of the first command from there on, and whether there is nothing else in the text."""
    found, at, end = list[_Word](), start, len(text.rstrip())
    while True:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at >= end:
            return found, True
        word = WORD.match(text, at)
        if word is None or word[0].startswith("#"):
            return found, False
        found.append(_Word(without_quotes(CONTINUED.sub(r"\1\2", word[0])), word[0], at))
        at = word.end()


def _parsed(words: Sequence[_Word], field: str, before: Sequence[_Word]) -> tuple[MpirunOptions, list[_Word]]:
    """``before``: variables that are set for mpirun. Raises BadSpec."""
    found = _Found(field)
    for word in before:
        found.assigned(word)
    rest = list(words)
    while rest and rest[0].value.startswith("-"):
        name, equals, value = rest.pop(0).value.lstrip("-").partition("=")
        if name in ("mca", "gmca"):
            found.parameter(found.value_of(name, rest), found.value_of(name, rest))
        elif name in _SAME:
            continue
        elif name == "pernode":
            found.per_node = "1"
        elif name in _FLAGS:
            found.ignored.append(f"-{name}: {_FLAGS[name]}")
        else:
            found.option(name, _Word(value, shlex.quote(value)) if equals else found.value_of(name, rest))
    if any(word.value == ":" for word in rest):
        raise BadSpec("has several programs for mpirun; start one that does as its rank says", field=field)
    return found.options(), rest


class _Found:
    """Options that were read so far."""

    def __init__(self, field: str) -> None:
        self._field = field
        self.processes: int | None = None
        self.per_node = self.hosts = self._slots = ""
        self.variables: list[str] = []
        self.ignored: list[str] = []

    def options(self) -> MpirunOptions:
        """Slots of a host count where no number of processes is named, as mpirun fills them then."""
        per_node = self.per_node or ("" if self.processes is not None else self._slots)
        return MpirunOptions(self.processes, per_node, self.hosts, self.variables, self.ignored)

    def value_of(self, name: str, rest: list[_Word]) -> _Word:
        if not rest:
            raise BadSpec(f"mpirun's -{name[:64]} has no value, or is not known here; leave it out", field=self._field)
        return rest.pop(0)

    def option(self, name: str, word: _Word) -> None:
        """Raises BadSpec for an unknown one."""
        if name in _IGNORED:
            self.ignored.append(f"-{name}: {_IGNORED[name]}")
        elif name in _REFUSED:
            raise BadSpec(f"mpirun's -{name}: {_REFUSED[name]}", field=self._field)
        elif name in self._OPTIONS:
            self._OPTIONS[name](self, name, word)
        else:
            raise BadSpec(f"-{name[:64]} is no option of mpirun that is known here; leave it out", field=self._field)

    def parameter(self, name: _Word, value: _Word) -> None:
        """Of Open MPI: ranks read it in a variable."""
        if _OF_THE_PLATFORM.fullmatch(name.value):
            self.ignored.append(f"-mca {name.value[:64]}: the platform sets how mpirun starts and connects ranks")
        else:
            self.variables.append(f"{_PARAMETER}{name.raw}={value.raw}")

    def assigned(self, word: _Word) -> None:
        if (why := _why_not(word)) is not None:
            self.ignored.append(why)
        else:
            self.variables.append(word.raw)

    def _processes(self, name: str, word: _Word) -> None:
        self.processes = None if _ALL_SLOTS.fullmatch(word.value) else self._number(name, word.value)

    def _per_node(self, name: str, word: _Word) -> None:
        self.per_node = str(self._number(name, word.value))

    def _number(self, name: str, value: str) -> int:
        if not (value.isascii() and value.isdecimal()):
            raise BadSpec(
                f"mpirun's -{name} {value[:64]!r} is no number, and the platform has to know how many ranks there are; "
                "write the number, or leave it out",
                field=self._field,
            )
        return int(value.lstrip("0")[:9] or 0)  # larger numbers are refused later

    def _places(self, name: str, word: _Word) -> None:
        if match := _PER_NODE.fullmatch(word.value):
            self.per_node = str(self._number(name, match[1]))
        elif word.value.partition(":")[0].lower() != _SAME_PLACES[name]:
            self.ignored.append(f"-{name}: {_PLACES}")

    def _variable(self, _: str, word: _Word) -> None:
        """All variables reach the ranks; one with a value is set for them."""
        name, equals, _ = word.value.partition("=")
        if equals and is_reserved(name):
            self.ignored.append(f"-x {name[:64]}: the platform sets this variable")
        elif equals:
            self.variables.append(word.raw)

    def _host(self, name: str, word: _Word) -> None:
        match = _LOCAL.fullmatch(word.value)
        if match is None:
            raise BadSpec(
                f"mpirun's -{name} names hosts ({word.value[:64]!r}), and the platform chooses nodes; leave it out: "
                "the numbers of nodes and processes say where ranks are",
                field=self._field,
            )
        self.hosts = word.value
        self._slots = match[1] or ""

    def _host_file(self, name: str, word: _Word) -> None:
        if not _HOST_FILE.fullmatch(word.value):
            raise BadSpec(
                f"mpirun's -{name} {word.value[:64]!r}: there is no host file here, since the platform knows nodes and "
                "slots; leave it out",
                field=self._field,
            )

    _OPTIONS: Mapping[str, Callable[["_Found", str, _Word], None]] = {
        **dict.fromkeys(("np", "n", "c"), _processes),
        **dict.fromkeys(("N", "npernode", "ppn"), _per_node),
        **dict.fromkeys(("H", "host"), _host),
        **dict.fromkeys(("hostfile", "machinefile", "default-hostfile"), _host_file),
        **dict.fromkeys(_SAME_PLACES, _places),
        "x": _variable,
    }
