"""Running steps: a run and its record, the loop without a server, and Prefect's flows and pages."""
