"""Values, events, findings and protocols that all other packages share.

- catalog_values: values for listing skills, such as Finding and CatalogPlan
- codec: JSON form of values
- events: all events of a run, and their JSON lines
- findings: severity, message, hint and reason of every finding code
- ports: protocols of models, tools, workspaces, stores and approvers
- storage_values: values of stores: session keys, leases, chain heads, artifact names
- values: values of a run: messages, calls, outcomes, decisions, plans
"""
