"""The commands of `bertloom`, a module a group; `flows.cli.app` registers them."""
