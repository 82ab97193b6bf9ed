"""Rules that span fields of a job specification; each error names field, rule and way out."""
