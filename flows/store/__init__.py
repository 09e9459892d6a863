"""Below the artifact store: backends, refs, leases, garbage, checks of what is stored."""
