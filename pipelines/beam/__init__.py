"""What every Beam job has in common: work on planned splits, reuse of finished work, runners,
workers."""
