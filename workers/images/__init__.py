"""Container images of jobs on this node: fetched, unpacked and kept by content."""
