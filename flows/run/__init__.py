"""Runs of recipes: step graph, cache keys, plan, executor, events.

===============================================  ======================
which stage reads what                           `graph`
whether a step's artifact is in the store        `cache_keys`, `plan`
one run of a recipe, and the order of its steps  `run`, `executor`
one step                                         `step_execution`
what a run reports to its listeners              `events`
===============================================  ======================
"""
