"""Extracts metrics and progress from rank 0's output by the job's patterns, for scripts that only print them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from app.patterns.script_metrics import EPOCH, STEP, TOTAL_STEPS, metric_patterns
from trainyard.protocol import messages
from trainyard.protocol.run_spec import RunSpec
from workers.rank.spec_sections import training_config
from workers.supervisor.ranks.rank_logs import LineListener


def metrics_listener(
    spec: RunSpec, start_step: int, overhear: Callable[[messages.Progress | messages.MetricPoint], None]
) -> LineListener | None:
    """Reports what it finds in lines; None when the job has no patterns for them."""
    printed = ScriptMetrics(training_config(spec).framework.config, start_step)
    if not printed.wants_lines:
        return None

    def on_lines(lines: list[str]) -> None:
        for report in printed.read(lines):
            overhear(report)

    return on_lines


class ScriptMetrics:
    """State of the extraction.

    A value belongs to the last step that was found. Without a pattern for steps, occurrences of a metric are counted.
    """

    def __init__(self, config: Mapping[str, str], start_step: int) -> None:
        self._patterns = metric_patterns(config)
        self._places = {name: self._patterns.pop(name) for name in (STEP, TOTAL_STEPS, EPOCH) if name in self._patterns}
        self._step = start_step
        self._total_steps: int | None = None
        self._epoch = 0.0
        self._counted: Counter[str] = Counter(dict.fromkeys(self._patterns, start_step))

    @property
    def wants_lines(self) -> bool:
        """Whether there is any pattern."""
        return bool(self._patterns or self._places)

    def read(self, lines: Iterable[str]) -> Iterator[messages.Progress | messages.MetricPoint]:
        """Reports from further lines, in their order."""
        for line in lines:
            moved = self._move(line)
            values = _numbers(self._patterns, line)
            if STEP in self._places:
                points = [(self._step, values)] if values else []
            else:
                points = [(self._count(name), {name: value}) for name, value in values.items()]
            if moved or points:
                yield messages.Progress(step=self._step, total_steps=self._total_steps, epoch=self._epoch, tokens=0)
            for step, found in points:
                yield messages.MetricPoint(step=step, at=datetime.now(UTC), values=found)

    def _move(self, line: str) -> bool:
        """Whether the line changes the position; steps never decrease."""
        values = _numbers(self._places, line)
        before = (self._step, self._total_steps, self._epoch)
        self._step = max(self._step, _whole(values.get(STEP), self._step))
        self._total_steps = _whole(values.get(TOTAL_STEPS), 0) or self._total_steps
        self._epoch = max(self._epoch, values[EPOCH] if 0 <= values.get(EPOCH, -1) <= messages.MAX_STEP else 0.0)
        return before != (self._step, self._total_steps, self._epoch)

    def _count(self, name: str) -> int:
        self._counted[name] += 1
        self._step = max(self._step, self._counted[name])
        return self._counted[name]


def _numbers(patterns: Mapping[str, Any], line: str) -> dict[str, float]:
    """The numbers that the patterns' groups match in the line, by name."""
    values = {}
    for name, pattern in patterns.items():
        found = pattern.search(line)
        with contextlib.suppress(ValueError):
            if found is not None and found.group(1) is not None:
                values[name] = float(found.group(1))
    return values


def _whole(value: float | None, otherwise: int) -> int:
    return int(value) if value is not None and 0 <= value <= messages.MAX_STEP else otherwise
