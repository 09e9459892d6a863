"""Cards: the `README.md` of an artifact, as the Hugging Face hub reads it.

=====================================  ==========================================================
question                               module
=====================================  ==========================================================
whose the texts of a source are        `licences`
what an artifact was made from         `ancestors`
what stands on a card of rows          `dataset_cards`
what stands on a card of a model       `model_cards`
how front matter and tables are        `markdown`
written
where a card lies, when it is written  `cards`: beside `data/` and the manifest, before the
                                       artifact is published
=====================================  ==========================================================

A card is made of what decided the artifact's bytes and of what the recipe says of licences: no
times, machines or paths, so that the same artifact has the same card. It is in no digest of the
artifact, and has its own, which `bertloom verify` checks.
"""
