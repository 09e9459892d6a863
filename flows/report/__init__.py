"""The report of a run: one HTML page.

`page` writes it. Each section has a template in `templates/` and is read from manifests and records
as plain data: `steps`, `corpus`, `records` (dropped records, lengths), `curves`, `results`.
`plots` draws charts, and `figures` keeps drawn charts in the store.
"""
