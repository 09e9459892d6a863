"""A run as one page of HTML.

`page` writes it. Sections are read from the manifests as plain data: `steps` (what ran, with which
software), `corpus`, `curves` of pretraining, `results` of the tasks, `lineage`. What the page says
of them, wording and tables, stands in `templates/`, a file a section: of the vocabulary in
`templates/corpus.html.j2`. `lengths`, `curves`, `results` and `overview` draw figures with
`drawing`; `figures` keeps those in the store for which files must be read.
"""
