"""Values by trial, with a line at the best so far."""

from app.domain.sweeps.axes import Axis, axis_of_measured
from app.domain.sweeps.figures import ObjectiveHistory
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import (
    ROOM,
    Plot,
    PlotMark,
    better,
    facts,
    hint_of,
    left_margin,
    legend,
    marks,
    of_trials,
)
from app.domain.sweeps.pictures.ticks import text_of

_HEIGHT, _TOP, _BELOW, _RIGHT = 300, 88, 62, 24


def draw(found: ObjectiveHistory, name: str) -> str:
    best = found.best[-1] if found.best else None
    heading = svg.Heading(
        kind="history",
        title=f"{name}: {found.objective.metric} by trial",
        facts=facts(
            of_trials(len(found.points), found.measured),
            f"best {text_of(best.value)} in trial {best.number}" if best else "",
        ),
        description=_description(found),
    )
    return svg.document(heading, _TOP + _HEIGHT + _BELOW, _parts(found))


def _parts(found: ObjectiveHistory) -> list[str]:
    y = axis_of_measured(found.objective.metric, [each.value for each in (*found.points, *found.best)]).widened(ROOM)
    last = max((each.number for each in found.points), default=0)
    x = Axis(name="trial", scale="linear", low=0, high=max(last, 1), is_whole=True).widened(ROOM / 2)
    left = left_margin(y, height=_HEIGHT)
    plot = Plot(left=left, top=_TOP, width=svg.WIDTH - left - _RIGHT, height=_HEIGHT, x=x, y=y)
    titles = [plot.y_title(better(found.objective)), plot.x_title("trial")]
    if not found.points:
        return [*plot.empty("no trial has a value yet"), *titles]
    best = {each.number for each in found.best}
    dots = [
        PlotMark(
            x=x.position(each.number) or 0.0,
            y=y.position(each.value) or 0.0,
            state=each.state,
            is_feasible=each.is_feasible,
            is_best=each.number in best,
            hint=hint_of(each.number, each.state, each.value),
        )
        for each in found.points
    ]
    return [
        *plot.frame(),
        *titles,
        *_record(found, plot, last),
        *marks(plot, dots),
        *legend(dots, 70, best="best so far"),
    ]


def _record(found: ObjectiveHistory, plot: Plot, last: int) -> list[str]:
    """The best so far, as stairs to the last trial."""
    corners: list[tuple[float, float]] = []
    for each in found.best:
        x, y = plot.at(each.number, each.value)
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    if corners:
        corners.append((plot.at(last, found.best[-1].value)[0], corners[-1][1]))
    return [svg.path(corners, "record")]


def _description(found: ObjectiveHistory) -> str:
    if not found.best:
        return f"A chart of {better(found.objective)} by the number of the trial. No trial has completed yet."
    first, last = found.best[0], found.best[-1]
    return (
        f"A chart of {better(found.objective)} by the number of the trial, for {found.measured} trials. "
        f"The best so far goes from {text_of(first.value)} in trial {first.number} to {text_of(last.value)} "
        f"in trial {last.number}."
    )
