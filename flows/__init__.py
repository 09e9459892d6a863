"""Workflows: stages chained into runs with cached artifacts, the artifact store, the command line.

The only package that knows Prefect (schemas -> pipelines -> model -> flows).
"""

from flows.log_filters import silence_noisy_loggers
from flows.prefect_settings import set_prefect_defaults

set_prefect_defaults()  # before any module of this package loads Prefect
silence_noisy_loggers()  # before any loads Beam
