"""Instances: masked pairs of segments from tokenized documents."""
