"""Names of fields in errors about translated documents, and generated name suffixes."""

import re
import secrets
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from app.domain.errors import InvalidRequest, LimitExceeded
from app.http.errors import BadShape
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import field_paths, warning

_CLAUSE = "; "
# Words of a message that may be names of native fields; quoted text, paths and URIs are excluded.
_TOKEN = re.compile(r"(?<![\w/.:'\"$-])[a-z]\w*(?:\.\w+)*(?![\w/])")
# Where a text of a sweep names a field of the document of its trials.
_OF_TRIALS = re.compile(r"(?<![\w/.])job\.(?=[a-z]+_config)")
_AS_REMARK = re.compile(r" \(([a-z]\w*(?:\.\w+)*)\)")


def _native_fields() -> frozenset[str]:
    """Paths of all fields and sections of a job document."""
    paths = [path.split(".") for path in field_paths(SubmitJobSchema())]
    return frozenset(".".join(path[:depth]) for path in paths for depth in range(1, len(path) + 1))


NATIVE_FIELDS = _native_fields()


@dataclass(frozen=True)
class Naming:
    """Translates native field names to a client's names, in fields and texts of errors and warnings.

    ``names``: prefix of a native field → the client's field; ``rest`` is the field for all others.
    ``words``: replacements in texts for a name, or a name with its value, where the field name does not fit.
    ``holds_native``: whether ``rest`` accepts native fields by their names.
    """

    names: Mapping[str, str]
    rest: str
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    holds_native: bool = False

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translates errors about the native document that are raised in the body."""
        try:
            yield
        except BadShape as error:
            raise BadShape([(self.field(name), self.text(why, of=name)) for name, why in error.details]) from error
        except InvalidRequest as error:
            error.message = self.text(error.message, of=error.field or "")
            if error.field is not None:
                error.field = self.field(error.field)
            raise
        except LimitExceeded as error:
            error.message = self.text(error.message)
            raise

    def field(self, native: str) -> str:
        known = [name for name in self.names if f"{native}.".startswith(f"{name}.")]
        return self.names[max(known, key=len)] if known else f"{self.rest}.{native}".rstrip(".")

    def line(self, line: str) -> str:
        """Translates a warning, ``field: reason``."""
        native, _, reason = line.partition(": ")
        return warning(self.field(native), self.text(reason, of=native))

    def text(self, text: str, *, of: str = "") -> str:
        """Translates a text; ``of`` is the native field that it is about, whose name at the beginning is removed.

        Clauses but the first are dropped if they name a field that the client does not have.
        """
        name = re.escape(of.rpartition(".")[2])
        text = re.sub(rf"^{name} (?=[a-z])(?!and |or )", "", text) if name else text
        first, *others = self._with_words(_OF_TRIALS.sub("", text)).split(_CLAUSE)
        return _CLAUSE.join(
            [self._translated(first), *(self._translated(each) for each in others if self._is_known(each))]
        )

    def _with_words(self, text: str) -> str:
        if not self.words:
            return text
        longest_first = "|".join(re.escape(native) for native in sorted(self.words, key=len, reverse=True))
        return re.sub(rf"(?<![\w.])(?:{longest_first})(?!\w)", lambda found: self.words[found[0]], text)

    def _translated(self, clause: str) -> str:
        clause = _AS_REMARK.sub(lambda found: found[0] if self._name(found[1]) else "", clause)
        return _TOKEN.sub(lambda found: self._name(found[0]) or found[0].rpartition(".")[2].replace("_", " "), clause)

    def _is_known(self, clause: str) -> bool:
        return all(self._name(token) for token in _TOKEN.findall(_AS_REMARK.sub("", clause)))

    def _name(self, token: str) -> str:
        """The client's name; empty for a native field that the client does not have."""
        paths = self._paths.get(token)
        if paths is None:
            above = token.rpartition(".")[0]  # an item of a list, or a value of a map
            name = self._name(above) if above else above
            return token if name == above else name
        known = [self.names[path] for path in paths if path in self.names]
        if known:
            return known[0]
        return f"{self.rest}.{paths[0]}" if self.holds_native else ""

    @cached_property
    def _paths(self) -> Mapping[str, list[str]]:
        """Word that can only be the name of a native field → the fields that it may name."""
        found: dict[str, list[str]] = {}
        for path in sorted(NATIVE_FIELDS | self.names.keys()):
            parts = path.split(".")
            for ending in (".".join(parts[start:]) for start in range(len(parts))):
                if "_" in ending or "." in ending:
                    found.setdefault(ending, []).append(path)
        return found


def name_suffix(length: int) -> str:
    """A random suffix for a generated name."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))
