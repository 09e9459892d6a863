"""Data that packages exchange: configurations, Arrow schemas, fingerprints, manifests, errors.

Imports no other package of bertloom (schemas -> pipelines -> model -> flows).
"""
