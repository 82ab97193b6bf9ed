"""How much each parameter matters, as bars."""

from app.domain.sweeps.figures import Importance, ParameterImportance
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import facts
from app.domain.sweeps.pictures.ticks import text_of

_TOP, _ROW, _BAR, _BELOW = 76, 34, 18, 20
_MOST_LABEL, _RIGHT = 230, 24
_VALUE_ROOM = 52
_ROWS_OF_NONE = 3


def draw(found: Importance, name: str) -> str:
    of = found.objective.metric if found.objective is not None else "the Pareto front"
    compared = f"the best {found.best} of {text_of(found.completed)} completed trials, compared with all"
    heading = svg.Heading(
        kind="importance",
        title=f"{name}: what matters for {of}",
        facts=facts("PED-ANOVA", compared if found.parameters else ""),
        description=_description(found, of),
    )
    rows = len(found.parameters) or _ROWS_OF_NONE
    return svg.document(heading, _TOP + _ROW * rows + _BELOW, _parts(found) if found.parameters else [_too_few(found)])


def _too_few(found: Importance) -> str:
    return svg.text(svg.WIDTH / 2, _TOP + _ROW * _ROWS_OF_NONE / 2, _missing(found), "muted", anchor="middle")


def _missing(found: Importance) -> str:
    return f"importances need {found.needed} completed trials, and there are {found.completed}"


def note_of(each: ParameterImportance, completed: int) -> str:
    """What a reader of its importance should know."""
    if each.is_constant:
        return "constant"
    return f"active in {text_of(each.trials)} of {text_of(completed)} trials" if each.is_conditional else ""


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"
    return f"{share:.0%}".replace("%", "\N{NO-BREAK SPACE}%")


def _parts(found: Importance) -> list[str]:
    names = [
        max(svg.width_of(each.name), svg.width_of(note_of(each, found.completed), 11)) for each in found.parameters
    ]
    left = 20 + min(_MOST_LABEL, max(names, default=0.0)) + 14
    width = svg.WIDTH - left - _RIGHT - _VALUE_ROOM
    most = max((each.importance for each in found.parameters), default=0.0) or 1.0
    parts = []
    for place, each in enumerate(found.parameters):
        y = _TOP + place * _ROW
        parts += _label(each, note_of(each, found.completed), left - 14, y)
        if each.is_constant:
            continue
        length = max(1.5 if each.importance else 0.0, width * each.importance / most)
        share = percent(each.importance)
        parts += [
            svg.box(left, y, length, _BAR, "bar", hint=f"{each.name}: {share}"),
            svg.text(left + length + 8, y + 13, share, "strong"),
        ]
    # The line that bars begin at.
    parts.append(svg.line(left, _TOP - 6, left, _TOP + len(found.parameters) * _ROW - _ROW + _BAR + 6, "line"))
    return parts


def _label(each: ParameterImportance, note: str, right: float, y: float) -> list[str]:
    kind = "muted" if each.is_constant else ""
    name = svg.fitted(each.name, _MOST_LABEL, from_end=True)
    parts = [svg.text(right, y + (8 if note else 13), name, kind, anchor="end", full=each.name)]
    return [*parts, svg.text(right, y + 21, note, "muted small", anchor="end")] if note else parts


def _description(found: Importance, of: str) -> str:
    if not found.parameters:
        return f"Bars of the importance of each parameter for {of}: {_missing(found)}."
    shares = ", ".join(f"{each.name} {percent(each.importance)}" for each in found.parameters if not each.is_constant)
    return f"Bars of the importance of each parameter for {of}, by PED-ANOVA: {shares}."
