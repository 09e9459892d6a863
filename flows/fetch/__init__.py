"""Downloads of raw data: Wikipedia dumps and the labeled datasets of the paper's tasks."""
