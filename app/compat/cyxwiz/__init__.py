"""CyxWiz's job execution API (JobConfig, ProgressUpdate, CompletionReport), in protobuf's JSON or binary format."""
