"""The parts of a run's report: what it says of steps, corpus, training and tasks, and its figures.

`flows.report.page` puts them together. Nothing here imports matplotlib or pyarrow unless a figure
has to
be drawn for the first time.
"""
