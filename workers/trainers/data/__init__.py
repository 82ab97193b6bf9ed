"""What built-in trainers learn from: files become rows, rows records, records token ids on disk or in a stream."""
