"""Workflows: stages chained into runs with cached artifacts, the artifact store, the command line.

The only package that knows Prefect (schemas -> pipelines -> model -> flows).
"""

from flows.prefect_environment import set_environment
from flows.quiet_libraries import leave_out_noise

set_environment()  # before any module of this package loads Prefect
leave_out_noise()  # before any loads Beam
