"""Lineage for others: OpenLineage events, kept in the store first and pushed after."""
