"""Workflows: stages chained into runs with cached artifacts, the artifact store, the command line.

The only package that knows Prefect (schemas -> pipelines -> model -> flows).
"""

from flows.log_filters import silence_noisy_loggers

silence_noisy_loggers()  # before any loads Beam
