"""Values, events, findings and protocols that all other packages share.

- catalog_values: values for listing skills, such as Finding and CatalogPlan
- codec: JSON form of values
- events: all events of a run, and their JSON lines
- findings: severity, message, hint and reason of every finding code
- isolation: writes isolation into records, and reads it from them
- ports: protocols of models, tools, workspaces, stores and approvers
- tool_context: `ToolContext`, with which a function finds its session, files and dependencies
- tool_table: facts about each built-in tool: risk, aliases, arguments, profiles, texts
- values: values of a run: messages, calls, outcomes, decisions, plans
"""
