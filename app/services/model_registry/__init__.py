"""Models with names: base models that an administrator registered, and fine-tuned models."""
