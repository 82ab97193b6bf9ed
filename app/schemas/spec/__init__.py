"""Schemas of a job document's sections, and the verdict on each field."""
