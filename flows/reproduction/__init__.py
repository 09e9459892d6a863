"""Bundles that reproduce an artifact on another machine."""
