"""Artefacts by URI: checkpoints, results and logs of jobs."""
