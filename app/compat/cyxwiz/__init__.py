"""CyxWiz's job execution: JobConfig in, ProgressUpdate and CompletionReport out, as protobuf's JSON or binary."""
