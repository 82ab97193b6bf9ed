"""Models: loading, adapters, quantization, export."""
