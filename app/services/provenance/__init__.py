"""Where the models of jobs come from, and what was made of them: model cards and lineage."""
