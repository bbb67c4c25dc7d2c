"""Application services: what the command line, evals and a service all need.

- documents: the public JSON shapes of contract.md that several verbs share
- policy_check: what policy says about a call that nobody makes
- replay: what a recorded run was given, to be given again
- settings_check: settings that have no effect, or that a run would be refused for, as findings of `prowess doctor`
"""
