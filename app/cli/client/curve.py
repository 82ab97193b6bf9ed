"""Plots a curve in plain characters, for terminals and log files."""

from collections.abc import Sequence

Point = tuple[float, float]

MEAN, RANGE = "*", ":"


def draw(points: Sequence[Point], *, width: int = 72, height: int = 14) -> list[str]:
    """The lines of a plot of (x, y) points: the mean and the range of each column."""
    if not points:
        return []
    columns = _columns(points, width)
    values = [value for column in columns for value in column]
    low, high = min(values), max(values)
    rows = [[" "] * width for _ in range(height)]
    for x, column in enumerate(columns):
        if not column:
            continue
        for y in range(_row(max(column), low, high, height), _row(min(column), low, high, height) + 1):
            rows[y][x] = RANGE
        rows[_row(sum(column) / len(column), low, high, height)][x] = MEAN
    return [*_with_labels(rows, low, high), *_x_axis(points, width)]


def _columns(points: Sequence[Point], width: int) -> list[list[float]]:
    first, last = points[0][0], points[-1][0]
    columns: list[list[float]] = [[] for _ in range(width)]
    for x, y in points:
        place = (x - first) / (last - first) if last > first else 0.0
        columns[min(width - 1, max(0, round(place * (width - 1))))].append(y)
    return columns


def _row(value: float, low: float, high: float, height: int) -> int:
    """0 is the top."""
    if high == low:
        return height // 2
    return round((high - value) / (high - low) * (height - 1))


def _with_labels(rows: list[list[str]], low: float, high: float) -> list[str]:
    last = len(rows) - 1
    labelled = {0, last // 2, last}
    lines = []
    for y, row in enumerate(rows):
        label = f"{high - (high - low) * y / max(last, 1):8.2f} +" if y in labelled else f"{'':8} |"
        lines.append(label + "".join(row).rstrip())
    return lines


def _x_axis(points: Sequence[Point], width: int) -> list[str]:
    first, last = f"{points[0][0]:g}", f"{points[-1][0]:g}"
    gap = " " * max(1, width - len(first) - len(last))
    return [f"{'':8} +{'-' * width}", f"{'':10}{first}{gap}{last}"]
