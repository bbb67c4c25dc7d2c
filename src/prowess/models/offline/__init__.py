"""Planner that follows commands written in skills, without a network and without a language model.

- answer: renders the planner's last message
- commands: finds the documented commands in the body of a skill, and parses their placeholders
- fill: chooses a command, and puts the values of a request into its placeholders
- model: the planner as a Model
- ranking: ranks skills and commands by how well they fit a request
- request_values: finds files, numbers, texts, dates and addresses in a request
"""
