"""From a recipe to finished stages: the plan, cache keys, running steps."""
