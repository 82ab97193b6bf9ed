"""Paths of OpenAI's API to which requests may be sent in a batch, and by a job."""

CHAT_COMPLETIONS, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
OPENAI_ENDPOINTS = (CHAT_COMPLETIONS, COMPLETIONS, EMBEDDINGS)
