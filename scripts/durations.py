"""Sums up what tests took, file by file and test by test, from the JUnit files that every run writes."""

import sys
from collections import defaultdict
from xml.etree import ElementTree as ET

FILES = 40
TESTS = 100


def main(paths: list[str]) -> str:
    """The slowest files and tests of these JUnit files, in seconds of wall time with set-up and teardown."""
    files: dict[str, float] = defaultdict(float)
    tests: dict[str, float] = defaultdict(float)
    for path in paths:
        for case in ET.parse(path).iter("testcase"):  # noqa: S314  # written by our own pytest
            file, took = case.get("classname", ""), float(case.get("time", 0))
            files[file] += took
            tests[f"{file}::{case.get('name', '')}"] += took
    total = f"{sum(files.values()):8.1f}  {len(tests)} tests in {len(files)} files"
    return "\n".join([total, "", *_slowest(files, FILES), "", *_slowest(tests, TESTS)])


def _slowest(seconds: dict[str, float], most: int) -> list[str]:
    ordered = sorted(seconds.items(), key=lambda entry: entry[1], reverse=True)
    return [f"{took:8.1f}  {name}" for name, took in ordered[:most]]


if __name__ == "__main__":
    print(main(sys.argv[1:]))
