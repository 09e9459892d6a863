"""Apache Beam jobs from raw dumps to instances, and the pure functions they are made of.

Beam workers import only this package and `schemas`, without torch and Prefect.
"""
