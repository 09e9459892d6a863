"""From a recipe to one finished step: stages, keys, plans, building a step, adopting."""
