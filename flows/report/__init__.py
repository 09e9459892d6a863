"""The report of a run: an HTML page, and one for each artifact.

`page` writes it. Each section has a template in `templates/` and is read from manifests and records
as plain data: `steps`, `corpus`, `curves`, `results`.
`plots` draws charts. `artifact_pages` writes a page for each artifact of the run's lineage, to
which the numbers of the report link.
"""
