"""Preflight of a job's code in a Git repository: whether it has the commit and the script that the job names."""

import shutil

from app.domain.spec.model import JobDocument
from app.domain.spec.rules.packages import packages_of
from workers.prepare.inputs.input_library import Library
from workers.prepare.inspection_report import Report
from workers.prepare.packages.requirements_file import read_requirements_file
from workers.prepare.programs.program import find_program


def inspect_code(library: Library, document: JobDocument) -> Report:
    """Fetch the commit into the cache, and look for the files that the job names. Raises AttemptFailed."""
    if shutil.which("git") is None:
        return {"left_out": ["the code: git is not installed on this coordinator"]}
    framework = document.training_config.framework
    _, code = find_program(library, framework)
    if (packages := packages_of(document)) is not None:
        read_requirements_file(packages, code)
    return {"code": {"location": framework.custom_code_dir}}
