"""Requests and answers in OpenAI's shapes."""
