"""The artifact store, and everything that is kept in it.

========================================  =====================================================
question                                  module
========================================  =====================================================
where an artifact is found, published,    `artifacts`: `ArtifactStore.lookup`, `commit`,
taken back                                `withdraw`
where a pointer or a ref is swapped       `pointers`, by `StoreBackend.create` and `swap`
what is published, under which names      `listing`
how a file is created or changed by one   `backend`: local disk, memory, S3, GCS
caller only
what is said of a damaged record          `records`
where a lease expires                     `leases`: `Holder.is_live`
whether a process is still there          `processes`
which runs are over                       `runs`: `judge`, `reconcile_runs`
what garbage collection keeps             `reachable`: `survey`
in which order it deletes                 `garbage`: `collect_garbage`
what is checked of artifacts and records  `verification`, rows of shards in `rows`
which records tell of finished pieces     `pieces`
========================================  =====================================================
"""
