"""What crosses a boundary: configurations, Arrow tables, fingerprints, manifests and errors.

Imports nothing else of bertloom (schemas -> pipelines -> model -> flows).
"""
