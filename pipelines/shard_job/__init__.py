"""Shard jobs: work items processed in one `ParDo`, and their cache."""
