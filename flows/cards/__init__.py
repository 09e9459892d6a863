"""Dataset and model cards: the `README.md` of an artifact, as the Hugging Face Hub reads it.

`cards` has the entry point, `dataset_cards` and `model_cards` collect what they state, and
`templates/` has their text. A card has no times, machines or paths, so equal artifacts have equal
cards.
"""
