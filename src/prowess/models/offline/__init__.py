"""The planner that follows commands written in skills, without a network.

- answer: what the planner says in the end
- choose: of the commands in a skill, the one to follow; or what is missing for the one that fits best
- code_arguments: where a command reads a word as code
- commands: the commands of a skill are lines that its author marked as such
- fill: which value of a request goes to which placeholder of a command
- model: the planner that works without a key
- ranking: which skill, and which command of it, a request is about
- request_values: what a request says, as values
- template: A command with placeholders, taken apart
- transcript: what the planner knows is what stands in the messages
"""
