"""Recipes that come with bertloom; `bertloom run NAME` runs `NAME.yaml`."""
