"""Shard jobs on Beam: work items, their cache, and the pipeline that processes them."""
