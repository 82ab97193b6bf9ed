"""Monitoring a training: reports, divergence, reward collapse, stragglers."""
