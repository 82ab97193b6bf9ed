"""The kinds of jobs, which also decide what a document has; apart from the sections, which take longer to import."""

TRAINING, BATCH, FEATURES, EVALUATION = "training", "batch", "features", "evaluation"  # JobDocument.kind
REPLICA = "replica"  # of a service, which makes such jobs
KINDS = (TRAINING, BATCH, FEATURES, EVALUATION, REPLICA)
