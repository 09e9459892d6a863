"""The artifact store.

- `artifacts`, `artifact`: publish, look up, list and read artifacts.
- `pointers`: cache keys and refs.
- `backend`: put-if-absent and compare-and-swap on disk, in memory, on S3 and GCS.
- `activity`, `leases`, `runs`, `process_identity`: which runs are alive, and what they build.
- `gc_roots`, `garbage_collection`: what is retained, and deletion of the rest.
- `verification`, `records`, `work_items`: integrity checks.
"""
