"""Instances from shards to batches on a device."""
