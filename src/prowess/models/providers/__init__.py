"""Thin adapters to providers.

- anthropic: `anthropic:NAME` over the Messages API
- attachments: pictures and files of a message in a form that a provider takes
- client: checked configuration, the SDK's client, and one whole exchange with a provider
- errors: turns a provider's errors into a ModelError
- message_order: neutral messages in the order that providers require
- openai: `openai:NAME` over Chat Completions or the Responses API
- openai_chat: Chat Completions, for OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and most others
- openai_responses: the Responses API of OpenAI
- reply_builder: builds a reply from the pieces of a stream
- schemas: JSON Schemas in the form that providers take
- sse: turns the bytes of a provider's stream into events
"""
