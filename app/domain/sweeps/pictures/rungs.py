"""Values at rungs: how many trials came there, which of them continued, and their lines from rung to rung."""

import math
from collections.abc import Iterator, Sequence

from app.domain.sweeps.axes import Axis, axis_of_measured
from app.domain.sweeps.figures import Rung, RungPoint, Rungs
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import ROOM, Plot, better, counted, facts, left_margin
from app.domain.sweeps.pictures.ticks import text_of

_HEIGHT, _TOP, _BELOW, _RIGHT = 320, 140, 62, 24
_GOLDEN, _SPREAD = (math.sqrt(5) - 1) / 2, 16  # pixels
_BAND, _BAR_WIDTH, _BAR_HEIGHT = 100, 64, 6


def draw(found: Rungs, name: str) -> str:
    reports = sum(each.trials for each in found.rungs)
    trials = max((each.trials for each in found.rungs), default=0)
    ended = sum(each.trials - each.continued for each in found.rungs)
    heading = svg.Heading(
        kind="rungs",
        title=f"{name}: {found.objective.metric} at rungs",
        facts=facts(found.early_stopping, counted(reports, "report"), f"{counted(ended, 'trial')} stopped at a rung")
        if trials
        else found.early_stopping,
        description=f"A chart of {better(found.objective)} at each rung. {' '.join(_sentences(found))}".strip(),
    )
    return svg.document(heading, _TOP + _HEIGHT + _BELOW, _parts(found))


def _sentences(found: Rungs) -> Iterator[str]:
    for each in found.rungs:
        best = f", best {text_of(each.best)}" if each.best is not None else ""
        yield f"{each.rung} {found.unit}: {counted(each.trials, 'trial')}, {_continued(each)}{best}."


def _parts(found: Rungs) -> list[str]:
    values = [each.value for rung in found.rungs for each in rung.reports if each.value is not None]
    y = axis_of_measured(found.objective.metric, values).widened(ROOM)
    x = Axis(name=found.unit, scale="listed", values=tuple(each.rung for each in found.rungs))
    left = left_margin(y, height=_HEIGHT)
    plot = Plot(left=left, top=_TOP, width=svg.WIDTH - left - _RIGHT, height=_HEIGHT, x=x, y=y)
    titles = [plot.y_title(better(found.objective)), plot.x_title(found.unit)]
    if not values:
        return [*plot.empty("no trial has reported at a rung yet"), *titles]
    return [*plot.frame(), *titles, *_counts(found.rungs, plot), *_lines(found, plot), *_legend()]


def _counts(rungs: Sequence[Rung], plot: Plot) -> list[str]:
    """Above each rung that has a label: its trials, and a bar for the share of them that continued."""
    labelled = {tick.position for tick in plot.x_ticks()}
    parts = []
    for each in rungs:
        if plot.x.position(each.rung) not in labelled:
            continue
        x, _ = plot.at(each.rung, 0.0)
        left, share = x - _BAR_WIDTH / 2, each.continued / max(1, each.trials)
        parts += [
            svg.text(x, _BAND, counted(each.trials, "trial"), "small strong", anchor="middle"),
            svg.text(x, _BAND + 14, _continued(each), "muted small", anchor="middle"),
            svg.box(left, _BAND + 20, _BAR_WIDTH, _BAR_HEIGHT, "track"),
            svg.box(left, _BAND + 20, _BAR_WIDTH * share, _BAR_HEIGHT, "bar"),
        ]
    return parts


def _continued(rung: Rung) -> str:
    return "at the end" if rung.is_last else f"{rung.continued:,} continued"


def _lines(found: Rungs, plot: Plot) -> list[str]:
    """Lines of trials with the best one last, then their marks."""
    by_trial: dict[int, list[RungPoint]] = {}
    for rung in found.rungs:
        for each in rung.reports:
            if each.value is not None:
                by_trial.setdefault(each.number, []).append(each)
    best = _best_number(found)
    ordered = sorted(by_trial, key=lambda number: (number == best, by_trial[number][-1].continues, number))
    drawn = [_line(by_trial[number], plot, is_best=number == best) for number in ordered]
    dots: dict[str, str] = {}
    for number in ordered:
        dots |= dict(_dots(by_trial[number], plot, is_best=number == best))
    return [*drawn, *dots.values()]


def _line(reports: Sequence[RungPoint], plot: Plot, *, is_best: bool) -> str:
    if len(reports) == 1:
        return ""
    kind = "record" if is_best else "went" if reports[-1].continues else "ended"
    return svg.path([_at(each, plot) for each in reports], kind)


def _at(report: RungPoint, plot: Plot) -> tuple[float, float]:
    """Trials at one rung lie beside each other, so that none hides another."""
    x, y = plot.at(report.rung, report.value or 0.0)
    return x + (report.number * _GOLDEN % 1 - 0.5) * _SPREAD, y


def _dots(reports: Sequence[RungPoint], plot: Plot, *, is_best: bool) -> Iterator[tuple[str, str]]:
    """(what it is and where, the mark)."""
    for each in reports:
        x, y = _at(each, plot)
        kind = "best" if is_best else "done" if each.continues else "stopped"
        hint = f"trial {each.number}: {text_of(each.value or 0.0)}, rank {each.rank} of {each.compared}"
        yield f"{kind} {x:.0f} {y:.0f}", svg.circle(x, y, 4.5 if is_best else 3, kind, hint=hint)


def _best_number(found: Rungs) -> int | None:
    """The best one at the highest rung."""
    last = [each for each in found.rungs[-1].reports if each.value is not None] if found.rungs else []
    best = min(last, key=lambda each: found.objective.sign * (each.value or 0.0), default=None)
    return None if best is None else best.number


def _legend() -> list[str]:
    parts, right = [], svg.WIDTH - _RIGHT
    for kind, meaning in (("stopped", "stopped here"), ("done", "continued"), ("best", "best at the last rung")):
        right -= round(svg.width_of(meaning, svg.SMALL))
        parts += [
            svg.text(right, 74, meaning, "muted small"),
            svg.circle(right - 9, 70, 4 if kind == "best" else 3, kind),
        ]
        right -= 30
    return parts
