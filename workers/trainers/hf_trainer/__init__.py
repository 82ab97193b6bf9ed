"""Trainers on Hugging Face's Trainer and trl."""
