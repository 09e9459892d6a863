"""What was made from what: graphs, pictures, traces of rows, differences, names of artifacts."""
