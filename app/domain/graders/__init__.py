"""Graders: what a completion is worth, in the form of OpenAI's reinforcement fine-tuning."""
