"""Kubernetes' API conventions for OME's objects: routes, lists, patches, watches, tables."""
