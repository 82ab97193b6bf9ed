"""Batches of requests in OpenAI's words: translation, the check of each request, and routes."""
