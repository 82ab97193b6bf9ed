"""Forms of an exported model beside safetensors, made from the exported directory and read again by their libraries."""
