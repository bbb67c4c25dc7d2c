"""Planner that follows commands written in skills, without a network and without a language model.

- answer: renders the planner's last message
- choose: chooses the command of a skill to run, or says which values are missing
- code_arguments: finds the words of a command that are read as code
- commands: finds the documented commands in the body of a skill
- fill: puts the values of a request into the placeholders of a command
- model: the planner as a Model
- ranking: ranks skills and commands by how well they fit a request
- request_values: finds files, numbers, texts, dates and addresses in a request
- template: parses a command with placeholders
- transcript: reads the request, skills and results from the messages
"""
