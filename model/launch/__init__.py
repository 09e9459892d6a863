"""Worker processes, stop requests, distributed training and CPU threads."""
