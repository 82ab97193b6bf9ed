"""Completions of a policy from ranks of their own: they get its weights after each step, and answer its prompts."""
