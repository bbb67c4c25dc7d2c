"""Structured actions: lets a model without tools drive the loop with JSON documents.

- calls: converts actions to tool calls and back
- json_repair: repairs small faults in a model's JSON, without inventing content
- model: wraps a text model as a Model
- partial_json: reads a JSON document while it arrives
- schema: parses an action document, and renders its JSON Schema
- transcript: renders the transcript for a text model
"""
