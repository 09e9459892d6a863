"""Apache Beam jobs from raw dumps to instances, and the pure functions they are made of.

Loads neither torch nor prefect: this and `schemas` are all that a Beam worker needs.
"""
