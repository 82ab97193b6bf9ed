"""Retention: deletes data by age or size, only as configured by the settings."""
