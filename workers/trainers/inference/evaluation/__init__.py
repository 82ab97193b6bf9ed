"""Evaluations: benchmarks of a model, one family of measures in each module, over an engine."""
