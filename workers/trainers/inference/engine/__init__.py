"""Engines that run a model for many requests, behind one interface."""
