"""Structured actions around any text model.

- calls: an action and the calls that it becomes are the same thing in two languages; each can be had from the other
- json_repair: what a language model wrote around or slightly beside JSON is mended, narrowly; content is never
  invented
- model: any text model can drive the loop
- partial_json: A JSON document is read while it arrives
- schema: A structured action is one JSON document
- transcript: the neutral transcript as a text model reads it
"""
