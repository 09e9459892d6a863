"""Instances: pairs of segments, masked, drawn from tokenised documents."""
