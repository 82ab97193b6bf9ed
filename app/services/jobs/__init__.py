"""Use cases of jobs: submit, cancel, pause, resume, retry, list, update, delete."""
