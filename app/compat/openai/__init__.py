"""OpenAI's API over the jobs of Trainyard."""
