"""Export formats besides safetensors, converted from the exported directory and verified with their libraries."""
