"""Settings, queue names and logging; imports nothing of ours."""
