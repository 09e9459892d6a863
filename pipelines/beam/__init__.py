"""What every Beam job has in common: work on planned splits, and reuse of finished
work."""
