"""Progress, logs, plots and throughput of a training. Nothing here decides what is trained."""
