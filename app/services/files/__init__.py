"""Uploaded files: creation, uploads in parts, listing, content, deletion."""
