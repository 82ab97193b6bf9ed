"""Inspection of uploaded files, in a sandboxed child of a coordinator."""
