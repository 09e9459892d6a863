"""Fetching raw data: Wikipedia's dumps and the labelled sets, resumed, verified, then moved in."""
