"""From a folder of one's own texts to a recipe: what is in it, and what size of model it bears."""
