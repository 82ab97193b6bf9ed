"""The formula that makes one reward of several: arithmetic over the names of graders."""

import math
import re
from collections.abc import Callable, Mapping

FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_OF_MANY = ("min", "max")
_MOST_TOKENS = 400
_DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|([-+*/^(),]))", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)

Values = Mapping[str, float]
_Evaluated = Callable[[Values], float]


class InvalidFormula(Exception):
    """A formula can't be read."""


class FormulaFailed(Exception):
    """A formula has no value for these rewards, such as a division by zero."""


def is_name(text: str) -> bool:
    """Whether a grader may have this name in a formula."""
    return bool(_NAME.fullmatch(text)) and text not in FUNCTIONS


class Formula:
    """``+ - * / ^``, parentheses, numbers, names and FUNCTIONS. Raises InvalidFormula."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: frozenset[str]
        self._value, self.names = _Parser(text).parsed()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def value(self, values: Values) -> float:
        """With a value for each of `names`. Raises FormulaFailed."""
        try:
            found = float(self._value(values))
        except (ArithmeticError, ValueError, TypeError) as error:
            raise FormulaFailed(f"{self.text[:100]}: {error}") from error
        if not math.isfinite(found):
            raise FormulaFailed(f"{self.text[:100]} is {found}")
        return found


class _Parser:
    """Recursive descent: sum → product → sign → power → atom; ``^`` binds to the right, before a sign."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def parsed(self) -> tuple[_Evaluated, frozenset[str]]:
        value = self._sum()
        if self._next():
            raise InvalidFormula(f"{self._next()} is not expected after {self._before()}")
        return value, frozenset(self._names)

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _before(self) -> str:
        return " ".join(self._tokens[max(0, self._at - 3) : self._at])

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            self._at -= 1
            raise InvalidFormula(f"{token} is expected after {self._before()}")

    def _sum(self) -> _Evaluated:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidFormula(f"it is nested deeper than {_DEEPEST}")
        value = self._product()
        while self._next() in ("+", "-"):
            value = _operation(self._take(), value, self._product())
        self._depth -= 1
        return value

    def _product(self) -> _Evaluated:
        value = self._sign()
        while self._next() in ("*", "/"):
            value = _operation(self._take(), value, self._sign())
        return value

    def _sign(self) -> _Evaluated:
        negative = False
        while self._next() in ("+", "-"):
            negative ^= self._take() == "-"
        value = self._power()
        return (lambda values: -value(values)) if negative else value

    def _power(self) -> _Evaluated:
        value = self._atom()
        if self._next() != "^":
            return value
        self._take()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidFormula(f"it is nested deeper than {_DEEPEST}")
        power = self._sign()
        self._depth -= 1
        return _operation("^", value, power)

    def _atom(self) -> _Evaluated:
        token = self._take()
        if token == "(":  # noqa: S105
            value = self._sum()
            self._expect(")")
            return value
        if token in FUNCTIONS:
            return self._call(token)
        if _NAME.fullmatch(token):
            self._names.add(token)
            return lambda values: values[token]
        if not token or not (token[0].isdigit() or token[0] == "."):
            self._at -= 1
            raise InvalidFormula(
                f"{token or 'more'} is {'not ' if token else ''}expected after {self._before()}".strip()
            )
        number = float(token)
        return lambda _: number

    def _call(self, name: str) -> _Evaluated:
        self._expect("(")
        given = [self._sum()]
        while self._next() == ",":
            self._take()
            given.append(self._sum())
        self._expect(")")
        if len(given) > 1 and name not in _OF_MANY:
            raise InvalidFormula(f"{name} takes one number, not {len(given)}")
        function = FUNCTIONS[name]
        if name in _OF_MANY:
            return lambda values: function([each(values) for each in given])
        return lambda values: function(given[0](values))


def _operation(operator: str, left: _Evaluated, right: _Evaluated) -> _Evaluated:
    if operator == "+":
        return lambda values: left(values) + right(values)
    if operator == "-":
        return lambda values: left(values) - right(values)
    if operator == "*":
        return lambda values: left(values) * right(values)
    if operator == "/":
        return lambda values: left(values) / right(values)
    return lambda values: math.pow(left(values), right(values))


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise InvalidFormula(f"{text[at:].lstrip()[:16]!r} can't be read")
        found.append(token[0].strip())
        at = token.end()
        if len(found) > _MOST_TOKENS:
            raise InvalidFormula(f"it has more than {_MOST_TOKENS} numbers, names and operators")
    if not found:
        raise InvalidFormula("it is empty")
    return found
