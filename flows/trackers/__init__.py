"""Experiment trackers: MLflow and Weights & Biases, where their variables are set.

========================================  =======================================================
question                                  module
========================================  =======================================================
when something is tracked, and where      `tracking`: `wanted`, `tracked`
what is told of a step                    `records`
how a curve is followed                   `tracking`: a thread reads what the training writes
what MLflow and W&B are asked             `mlflow_runs`, `wandb_runs`
========================================  =======================================================

Nothing of it is in the processes that train: they write curves to a file, as always, and this
process reads it. So no tracker can end, slow down or change a training, and only one process tells.
"""
