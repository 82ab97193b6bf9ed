"""What evaluations measure: the catalog of benchmarks, scores of texts, and statistics over samples."""
