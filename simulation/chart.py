"""A comparison as an SVG chart: devices in use by project, and waits by policy."""

from collections.abc import Mapping, Sequence
from html import escape

from simulation.measuring import ReplayReport, WaitTimes, use_over_time
from simulation.replay import Replay

WIDTH = 960
_LEFT, _RIGHT = 64, 24  # margins
_USE_HEIGHT, _GAP, _BAR = 120, 64, 16
_POINTS = 160
# Okabe and Ito's palette, which is distinguishable for colour-blind readers.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#666}.head{font-size:14px;"
    "font-weight:600}.axis{stroke:#bbb;stroke-width:1}.all{stroke:#444;stroke-dasharray:4 3}"
)


def draw(results: Mapping[str, tuple[Replay, ReplayReport]], *, title: str) -> str:
    """Draw results by policy: a chart of the devices in use for each, and a bar chart of waits."""
    until = max((done.ended_at for done, _ in results.values()), default=0.0) or 1.0
    projects = sorted({name for done, _ in results.values() for name in use_over_time(done, 1, until)})
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(projects)}
    top, parts = 92, [_text(_LEFT, 28, title, "head"), *_legend(colours)]
    for name, (done, report) in results.items():
        parts += _use_chart(name, done, report, colours, (top, until))
        top += _USE_HEIGHT + _GAP
    parts += _waits_chart({name: report.waits["all"].get("") for name, (_, report) in results.items()}, top)
    height = top + 40 + len(results) * (2 * _BAR + 12) + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{_STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _legend(colours: Mapping[str, str]) -> list[str]:
    parts, left = [], float(_LEFT)
    for name, colour in colours.items():
        parts += [_box(left, 40, 12, 12, colour), _text(left + 17, 50, name, "")]
        left += 40 + 7 * len(name)
    return parts


def _use_chart(
    name: str, done: Replay, report: ReplayReport, colours: Mapping[str, str], place: tuple[int, float]
) -> list[str]:
    """Stacked areas of the devices in use by project, below a line at the total."""
    top, until = place
    devices = sum(done.cluster.devices().values()) or 1
    wide, bottom = WIDTH - _LEFT - _RIGHT, top + _USE_HEIGHT
    used = "  ".join(f"{kind} {part:.0%}" for kind, part in report.utilisation.items())
    caption = (
        f"devices in use, while jobs came: {used}   fairness {report.fairness:.3f}   preemptions {report.preemptions}"
    )
    parts = [_text(_LEFT, top - 8, name, "head"), _text(WIDTH - _RIGHT, top - 8, caption, "small", anchor="end")]
    below = [0.0] * _POINTS
    for project, line in use_over_time(done, _POINTS, until).items():
        above = [low + more for low, more in zip(below, line, strict=True)]
        corners = [*_steps(above, wide, bottom, devices), *reversed(_steps(below, wide, bottom, devices))]
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        parts.append(f'<polygon points="{shape}" fill="{colours[project]}"/>')
        below = above
    parts += [
        _line(_LEFT, bottom, WIDTH - _RIGHT, bottom),
        _line(_LEFT, top, WIDTH - _RIGHT, top, "all"),
        _text(_LEFT - 8, top + 4, str(devices), "small", anchor="end"),
        _text(_LEFT - 8, bottom + 4, "0", "small", anchor="end"),
    ]
    unit, size = next(((unit, size) for unit, size in _UNITS if until >= 2 * size), ("s", 1))
    for quarter in range(5):
        x, caption = _LEFT + wide * quarter / 4, f"{until * quarter / 4 / size:.3g} {unit}"
        parts.append(_text(x, bottom + 16, caption, "small", anchor="middle"))
    return parts


def _steps(line: Sequence[float], wide: float, bottom: float, most: float) -> list[tuple[float, float]]:
    width = wide / len(line)
    found: list[tuple[float, float]] = []
    for place, value in enumerate(line):
        y = bottom - _USE_HEIGHT * min(1.0, value / most)
        if found and found[-1][1] == y:
            found.pop()  # as high as the step before: one longer step
        else:
            found.append((_LEFT + place * width, y))
        found.append((_LEFT + (place + 1) * width, y))
    return found


def _waits_chart(waits: Mapping[str, WaitTimes | None], top: int) -> list[str]:
    """Mean and 95th percentile of the waits for each policy."""
    label = 90
    most = max((each.p95 for each in waits.values() if each is not None), default=0.0) or 1.0
    wide = WIDTH - _LEFT - _RIGHT - label - 90
    parts = [_text(_LEFT, top, "wait until the first start", "head")]
    parts += [_box(_LEFT + 190, top - 11, 12, 12, COLOURS[0]), _text(_LEFT + 207, top, "mean", "")]
    parts += [_box(_LEFT + 260, top - 11, 12, 12, COLOURS[4]), _text(_LEFT + 277, top, "95 of 100 at most", "")]
    y = top + 20
    for name, each in waits.items():
        parts.append(_text(_LEFT, y + _BAR + 4, name, ""))
        for colour, seconds in ((COLOURS[0], each.mean if each else 0.0), (COLOURS[4], each.p95 if each else 0.0)):
            length = wide * seconds / most
            parts += [_box(_LEFT + label, y, length, _BAR - 2, colour)]
            parts += [_text(_LEFT + label + length + 6, y + 11, duration(seconds), "small")]
            y += _BAR
        y += 12
    return parts


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for unit, size in _UNITS:
        if seconds >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'
