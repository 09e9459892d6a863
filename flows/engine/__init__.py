"""From a recipe to one finished step: stages, keys, plans, estimates, building a step."""
