"""A class name has one meaning in the product (without the client): a reader who searches for it finds one class."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Without the client in `trainyard`, whose records and errors have the names of what they mirror.
TOPS = ("app", "config", "simulation", "tasks", "trainyard/_hooks", "trainyard/protocol", "workers")
# Names that several classes share, because what they mean is the same.
SHARED = {
    "Device": "a unit that can be scheduled: as a value of the planner, and as its row",
    "MethodSchema": "its name is that of a component in the OpenAPI document of each vocabulary",
    "Native": "the native document that each vocabulary of the API translates a request into",
    "Search": "the native sweep that two vocabularies of the API translate a request into",
    "Shard": "a part of the records of a job: as a value of the trainer, and as its row",
    "UsageSchema": "its name is that of a component in the OpenAPI document of each vocabulary",
}
# At the beginning of a line: a class in a function or a class is no name of the module.
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


def test_no_two_modules_define_a_class_of_one_name():
    modules: dict[str, list[str]] = defaultdict(list)
    for path in (path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))):
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            modules[name].append(str(path.relative_to(ROOT)))
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}

    assert shared.keys() == SHARED.keys(), shared
