"""Conditions of ``require``: comparisons of sums and products of parameters, parsed without ``eval``."""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domain.errors import BadSpec
from app.domain.sweeps.parameters import Value

MAX_LENGTH, MAX_NESTING = 500, 32

_Values = Mapping[str, Value]
_Term = Callable[[_Values], float]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_SUMS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[float, float], float]] = {"*": operator.mul, "/": operator.truediv}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<sign><=|>=|==|!=|[<>+*/()-]))",
    re.ASCII,
)


@dataclass(frozen=True)
class Condition:
    """``text`` as in the document; two conditions of one text are equal."""

    text: str
    names: frozenset[str]
    _test: Callable[[_Values], bool] = field(compare=False, repr=False)

    def holds(self, values: _Values) -> bool:
        """Whether the values, which are those of active parameters, meet it.

        It says nothing of parameters that are not active: then it holds. A division by zero does not.
        """
        if any(name not in values for name in self.names):
            return True
        try:
            return self._test(values)
        except ZeroDivisionError:
            return False


def parse_condition(text: str, *, field: str) -> Condition:
    """Raises BadSpec for ``field``."""
    if len(text) > MAX_LENGTH:
        raise BadSpec(f"has {len(text)} characters; a condition may have {MAX_LENGTH}", field=field)
    tokens = [*_tokens(text, field), _Token("end", "")]
    parser = _Parser(tokens, field)
    test = parser.comparison()
    names = frozenset(token.text for token in tokens if token.kind == "name")
    if not names:
        raise BadSpec(f"{text!r} names no parameter; leave it out", field=field)
    return Condition(text, names, test)


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str, field: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadSpec(
                f"{text[at:].strip()[:20]!r} is not understood; use names of parameters, numbers, + - * / ( ) and one "
                f"of {' '.join(_COMPARISONS)}",
                field=field,
            )
        at = found.end()
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind])


class _Parser:
    """Recursive descent: comparison, sum, product, factor."""

    def __init__(self, tokens: list[_Token], field: str) -> None:
        self._tokens = tokens
        self._field = field
        self._at = 0
        self._depth = 0

    def comparison(self) -> Callable[[_Values], bool]:
        left = self._sum()
        compare = _COMPARISONS.get(self._next().text)
        if compare is None:
            raise self._bad(f"is no comparison: put one of {' '.join(_COMPARISONS)} between two terms")
        right = self._sum()
        if self._peek().text in _COMPARISONS:
            raise self._bad("compares more than once; write two conditions")
        if self._peek().kind != "end":
            raise self._bad(f"has {self._peek().text!r} where it should end")

        def test(values: _Values) -> bool:
            one, other = left(values), right(values)
            return not (math.isnan(one) or math.isnan(other)) and compare(one, other)

        return test

    def _sum(self) -> _Term:
        return self._chain(_SUMS, self._product)

    def _product(self) -> _Term:
        return self._chain(_PRODUCTS, self._factor)

    def _chain(self, signs: Mapping[str, Callable[[float, float], float]], inner: Callable[[], _Term]) -> _Term:
        first = inner()
        rest: list[tuple[Callable[[float, float], float], _Term]] = []
        while self._peek().text in signs:
            rest.append((signs[self._next().text], inner()))

        def value(values: _Values) -> float:
            # A loop, because a recursion as long as the text could exceed Python's limit.
            total = first(values)
            for apply, term in rest:
                total = apply(total, term(values))
            return total

        return value if rest else first

    def _factor(self) -> _Term:
        token = self._next()
        if token.kind == "number":
            number = float(token.text)
            if not math.isfinite(number):
                raise self._bad(f"has a number that is too large, {token.text:.40}")
            return lambda _: number
        if token.kind == "name":
            return lambda values: float(values[token.text])
        if token.text in ("(", "-"):
            return self._nested(token.text)
        raise self._bad(f"has {token.text or 'its end'!r} where a name or a number should be")

    def _nested(self, sign: str) -> _Term:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._bad(f"is nested more than {MAX_NESTING} deep; write several conditions")
        if sign == "-":
            factor = self._factor()
            found: _Term = lambda values: -factor(values)  # noqa: E731 - as the other terms
        else:
            found = self._sum()
            if self._next().text != ")":
                raise self._bad("lacks a closing parenthesis")
        self._depth -= 1
        return found

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _bad(self, message: str) -> BadSpec:
        return BadSpec(message, field=self._field)
