"""Formats, filters, preprocessing and splits of training data."""
