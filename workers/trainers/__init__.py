"""The built-in trainers: the only place that imports torch."""
