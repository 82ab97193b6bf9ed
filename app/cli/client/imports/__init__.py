"""`trainyard import`: configurations of axolotl and LLaMA-Factory as job documents."""
