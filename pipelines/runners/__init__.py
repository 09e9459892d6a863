"""Runners of Beam jobs. They do not change the output, so cache keys do not count them."""
