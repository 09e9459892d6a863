"""Commands of `bertloom`, one module per command; `flows.cli.app` lists them."""
