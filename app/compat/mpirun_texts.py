"""Whether a command, or the text of a shell, starts mpirun somewhere inside, as far as its words show that. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile

PROGRAMS = ("mpirun", "mpiexec")
# A word of a shell's command line; operators, redirections and substitutions are none.
WORD = re.compile(r"""(?:[^\s'"\\;&|<>()`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
CONTINUED = re.compile(r"('[^']*')|\\\n|(\\.)", re.DOTALL)  # a line that continues, outside of single quotes
# Commands of a text, by what they consist of and what ends them; what is none of it is passed over.
_TOKEN = re.compile(
    rf"(?P<nothing>\\\n|#[^\n]*|<<<)|<<(?P<quote>['\"\\]?)(?P<document>\w+)(?P=quote)?"
    rf"|(?P<word>{WORD.pattern})|(?P<end>[;&|()`\n])",
    re.DOTALL,
)
_SUBSTITUTED = re.compile(r"(?:\$\(|`)\s*(?:[\w.-]*/)*(?:mpirun|mpiexec)(?=[\s;&|)`])")
_BEFORE_COMMANDS = frozenset({"if", "elif", "then", "else", "while", "until", "do", "!", "{", "time"})
_NAMES_ONLY = frozenset({"which", "type", "hash", "echo", "printf", "[", "[[", "test", "pip", "pip3"})
_SHELLS = frozenset({"sh", "bash", "dash"})
_COMMAND_OF_SHELL = re.compile(r"-[a-z]*c")
_MOST_SHELLS = 3  # within each other
_OF_A_PATH = r"(?:(?:which|command\s+-v|type\s+-p)\s+)?(?:[\w.-]*/)*(?:mpirun|mpiexec)(?![\w./-])"
# A variable that has mpirun, by which the text may start it; and a command that is the path which another one finds.
_VARIABLE = re.compile(rf"(?<![\w$-])([A-Za-z_]\w*)=[\\('\"$`]*\s*{_OF_A_PATH}")
_KEYWORDS = "|".join(map(re.escape, sorted(_BEFORE_COMMANDS - {"time"})))
_WITH_OPTIONS = r"(?:exec|time|nohup|env|timeout|numactl)[ \t]+(?:(?:-[^\s;&|(]*|[0-9][\w.]*)[ \t]+)*"
_FOUND = re.compile(
    rf"(?:^|[;&|(\n])[ \t]*(?:(?:{_KEYWORDS})[ \t]+|{_WITH_OPTIONS}|[A-Za-z_]\w*=[^\s;&|(]*[ \t]+)*"
    rf"\"?(?:\$\(|`)[ \t]*{_OF_A_PATH}"
)
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
# Programs that give what follows them, or the value of an option, to a shell or start it: of another machine or user.
_STARTERS = frozenset({"eval", "ssh", "rsh", "pdsh", "su", "runuser", "script", "flock", "xargs", "parallel", "watch"})
_SPLIT = re.compile(r"-[a-z0]*S|--split-string=?")  # of env
# Programs that start the one after their options, with those options whose value is a word of its own.
_WRAPPERS = {
    **dict.fromkeys((*_BEFORE_COMMANDS, "nohup", "setsid", "taskset", "command", "builtin", "unbuffer"), ""),
    "time": "fo",
    "exec": "a",
    "env": "uC",
    "timeout": "ks",
    "numactl": "CNaimpw",
    "nice": "n",
    "ionice": "cnp",
    "stdbuf": "eio",
    "chrt": "DPT",
    "sudo": "CDTghprtu",
}
_AMOUNT = re.compile(r"[0-9][\w.,:/+-]*")
_EXPANDED = re.compile(r"\$\(([A-Za-z_]\w*)\)|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)
_DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*:?[-=+]([^{}]*)\}", re.ASCII)
_MOST_EXPANDED = 1 << 16  # characters; a text that gets longer by variables with mpirun is taken for one that starts it
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"""\\(["\\])""")


def is_mpirun(word: str) -> bool:
    return word.rpartition("/")[2] in PROGRAMS


def is_part_of(words: Sequence[str]) -> bool:
    """Whether another program starts mpirun, or env does with options of its own, which can't be carried over."""
    return is_in(shlex.join(words))


def is_by_variables(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether mpirun comes from variables of the job: `$(NAME)` stands for one, and in the text of a shell `$NAME`."""
    return is_in(_expanded(words, variables))


def _expanded(words: Sequence[str], variables: Mapping[str, str]) -> str:
    """The command with the variables that have mpirun; empty without them."""
    named = {name: value for name, value in variables.items() if any(each in value for each in PROGRAMS)}
    has_text = any(_is_shell(word) or word.rpartition("/")[2] in {*_STARTERS, "env"} for word in words)

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or (has_text and (found[2] or found[3])) or ""
        return named.get(name, found[0])

    if not named:
        return ""
    text = "".join(words)
    size = sum(len(value_of(found)) for found in _EXPANDED.finditer(text))
    return PROGRAMS[0] if size > _MOST_EXPANDED else shlex.join(_EXPANDED.sub(value_of, word) for word in words)


def is_in(text: str, shells: int = 0) -> bool:
    """Whether a command of a shell's text starts mpirun, as far as its words show that.

    A word without quotes counts wherever it stands in a command, since many programs start others; Python does not.
    """
    if shells > _MOST_SHELLS:
        return any(name in text for name in PROGRAMS)
    text = _DEFAULT.sub(r"\1", text) if any(name in text for name in PROGRAMS) else text
    if _FOUND.search(text) or not {*_VARIABLE.findall(text)}.isdisjoint(_USED.findall(text)):
        return True
    at, words, documents, knows_documents = 0, list[str](), list[str](), True
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token["word"]:
            words.append(CONTINUED.sub(r"\1\2", token["word"]))
        elif token["document"] and not any(_is_shell(word) for word in words):
            documents.append(token["document"])
        elif token["end"]:
            if _starts(words, shells):
                return True
            words = []
            if token["end"] == "\n" and documents and knows_documents:
                end, documents = _after(documents, text, at), []
                at, knows_documents = max(at, end), end >= 0
    return _starts(words, shells)


def _after(documents: Sequence[str], text: str, at: int) -> int:
    """Where here-documents end that begin there; -1: one has no end."""
    for tag in documents:
        end = f"{text}\n".find(f"\n{tag}\n", at - 1)
        if end < 0:
            return -1
        at = min(end + len(tag) + 1, len(text))
    return at


def _starts(words: Sequence[str], shells: int) -> bool:
    """Whether a command, of words as they are written, starts mpirun."""
    if any('"' in word and _SUBSTITUTED.search(word) for word in words):
        return True
    words = list(takewhile(lambda word: not word.rpartition("/")[2].startswith("python"), words))
    first = (n for n, word in enumerate(words) if word not in _BEFORE_COMMANDS and not ASSIGNED.match(word))
    at = next(first, len(words))
    program, rest = (without_quotes(words[at]) if at < len(words) else ""), words[at + 1 :]
    if program in _NAMES_ONLY or (program == "command" and rest[:1] in (["-v"], ["-V"])):
        return False
    if is_mpirun(program) or any(map(is_mpirun, words)) or is_mpirun(_wrapped(words)):
        return True
    inner = _texts_of(words[at:])
    return bool(inner) and is_in(" ".join(inner), shells + 1)


def _wrapped(words: Sequence[str]) -> str:
    """The program that a command starts, also by others such as nohup, without the quotes around it."""
    with_values, rest = "", iter(words)
    for word in rest:
        value = without_quotes(word)
        if value.startswith("-"):
            if len(value) == 2 and value[1] in with_values:
                next(rest, "")
        elif not _AMOUNT.fullmatch(value) and not ASSIGNED.match(value):
            if (options := _WRAPPERS.get(value.rpartition("/")[2])) is None:
                return value
            with_values = options
    return ""


def _texts_of(words: Sequence[str]) -> Sequence[str]:
    """The texts that a command gives to a shell, or has another program start, as these get them: without quotes."""
    shell = next((number for number, word in enumerate(words) if _is_shell(word)), len(words))
    options = (number for number in range(shell + 1, len(words)) if _COMMAND_OF_SHELL.fullmatch(words[number]))
    after_option = words[next(options, len(words)) + 1 :]
    if (text := next((word for word in after_option if not word.startswith("-")), None)) is not None:
        return [without_quotes(text)]
    names = [word.rpartition("/")[2] for word in words]
    if (starter := next((number for number, name in enumerate(names) if name in _STARTERS), None)) is not None:
        return list(map(without_quotes, words[starter + 1 :]))
    after = [*map(without_quotes, words[names.index("env") :])] if "env" in names else []
    split = next((number for number, word in enumerate(after) if _SPLIT.match(word)), len(after))
    attached = [_SPLIT.sub("", word, count=1) for word in after[split : split + 1]]
    first, *following = [*filter(None, attached), *after[split + 1 :]] or [""]  # env splits the first one alone
    return [first, *map(shlex.quote, following)] if first else []


def _is_shell(word: str) -> bool:
    return word.rpartition("/")[2] in _SHELLS


def without_quotes(word: str) -> str:
    """The word without quotes, as `shlex` reads it, which takes quadratic time for a long word."""

    def content(found: re.Match[str]) -> str:
        return _ESCAPED_IN_QUOTES.sub(r"\1", found[2]) if found[2] else found[1] or found[3] or ""

    return _QUOTED.sub(content, word)
