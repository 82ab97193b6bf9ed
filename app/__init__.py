"""The control plane; imports nothing by itself."""
