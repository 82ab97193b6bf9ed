"""Training data of built-in trainers: files become rows, rows records, records token ids on disk or in a stream."""
