"""Prefect: server, flows' parts, tasks, hooks after a crash, what its pages show."""
