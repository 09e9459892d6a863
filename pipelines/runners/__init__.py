"""Where jobs run, and how their errors come back. No cache key counts this package: no runner
changes a byte of what a job writes."""
