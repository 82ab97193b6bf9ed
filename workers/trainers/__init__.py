"""The built-in trainers: the only package that imports torch."""
