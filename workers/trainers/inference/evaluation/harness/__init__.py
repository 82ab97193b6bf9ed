"""Benchmarks `lm_eval:TASK`: tasks of EleutherAI's lm-evaluation-harness, measured with an engine of ours."""
