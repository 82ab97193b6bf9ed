"""Two objectives of each trial, and the Pareto front."""

import math

from app.domain.sweeps.axes import axis_of_measured
from app.domain.sweeps.figures import FrontPoint, ParetoFront
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import (
    ROOM,
    Plot,
    PlotMark,
    better,
    counted,
    facts,
    hint_of,
    left_margin,
    legend,
    marks,
    of_trials,
)

_HEIGHT, _TOP, _BELOW, _RIGHT = 400, 88, 62, 28
_MOST_LABELS = 40


def draw(found: ParetoFront, name: str) -> str:
    best = [each for each in found.points if each.is_best]
    more = f"the front is that of all {found.objectives} objectives" if found.objectives > 2 else ""
    heading = svg.Heading(
        kind="front",
        title=f"{name}: {found.x.metric} and {found.y.metric}",
        facts=facts(of_trials(len(found.points), found.measured), f"{len(best)} on the Pareto front", more),
        description=_description(found, best),
    )
    return svg.document(heading, _TOP + _HEIGHT + _BELOW, _parts(found, best))


def _parts(found: ParetoFront, best: list[FrontPoint]) -> list[str]:
    x = axis_of_measured(found.x.metric, [each.x for each in found.points]).widened(ROOM)
    y = axis_of_measured(found.y.metric, [each.y for each in found.points]).widened(ROOM)
    left = left_margin(y, height=_HEIGHT)
    plot = Plot(left=left, top=_TOP, width=svg.WIDTH - left - _RIGHT, height=_HEIGHT, x=x, y=y)
    titles = [plot.y_title(better(found.y)), plot.x_title(better(found.x))]
    if not found.points:
        return [*plot.empty("no trial has values yet"), *titles]
    dots = [
        PlotMark(
            x=x.position(each.x) or 0.0,
            y=y.position(each.y) or 0.0,
            state=each.state,
            is_feasible=each.is_feasible,
            is_best=each.is_best,
            hint=hint_of(each.number, each.state, each.x, each.y),
        )
        for each in found.points
    ]
    stairs = _stairs(found, best, plot) if found.objectives == 2 else []
    parts = [*plot.frame(), *titles, *stairs, *marks(plot, dots), *_labels(found, best, plot)]
    return [*parts, *legend(dots, 70, best="on the Pareto front")]


def _stairs(found: ParetoFront, best: list[FrontPoint], plot: Plot) -> list[str]:
    """The border of what the front dominates: from one point to the next by the corner that is worse in both."""
    ordered = sorted(best, key=lambda each: (found.x.sign * each.x, found.y.sign * each.y))
    corners: list[tuple[float, float]] = []
    for each in ordered:
        x, y = plot.at(each.x, each.y)
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return [svg.path(corners, "record")]


def _labels(found: ParetoFront, best: list[FrontPoint], plot: Plot) -> list[str]:
    """Numbers of trials beside the front, where they have room: first on the side where no trial can be."""
    parts, taken = [], [plot.at(each.x, each.y) for each in found.points]
    for each in best[:: max(1, math.ceil(len(best) / _MOST_LABELS))]:
        x, y = plot.at(each.x, each.y)
        label = f"#{each.number}"
        wide = svg.width_of(label, svg.SMALL)
        for across, down in (
            (-found.x.sign, found.y.sign),
            (found.x.sign, -found.y.sign),
            (found.x.sign, found.y.sign),
        ):
            middle = (x + across * (wide / 2 + 8), y + down * 11)
            is_inside = (
                plot.left < middle[0] - wide / 2 and middle[0] + wide / 2 < plot.right and middle[1] < plot.bottom - 5
            )
            if is_inside and all(abs(middle[0] - ox) > wide / 2 + 6 or abs(middle[1] - oy) > 10 for ox, oy in taken):
                parts.append(svg.text(middle[0], middle[1] + 4, label, "small halo", anchor="middle"))
                taken.append(middle)
                break
    return parts


def _description(found: ParetoFront, best: list[FrontPoint]) -> str:
    text = (
        f"A chart of {better(found.y)} against {better(found.x)}, for {counted(found.measured, 'trial')}; "
        f"{len(best)} of them are on the Pareto front"
    )
    numbers = ", ".join(str(each.number) for each in best[:20])
    return f"{text}: {numbers}{', …' * (len(best) > 20)}." if best else f"{text}."
