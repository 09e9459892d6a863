"""What people are shown of a job in progress. No cache key counts this package: nothing that
decides data comes from here."""
