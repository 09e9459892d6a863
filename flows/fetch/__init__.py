"""Fetching raw data: Wikipedia's dumps (`wikipedia`) and the labelled sets (`labelled_sets`).

Both bring files by `downloads`, resumed and verified, through a polite `client`.
"""
