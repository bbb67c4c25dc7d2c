"""Adapters to providers, as thin as they can be.

- anthropic: `anthropic:NAME`
- attachments: A picture or a file of a message as bytes or an address that a provider can take; what it cannot is
  said in text
- client: one address of a provider
- errors: whatever goes wrong between us and a provider is a ModelError
- message_order: neutral messages in the order that providers insist on
- openai: `openai:NAME`
- openai_chat: chat Completions, as OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and most others speak it
- openai_responses: the Responses API of OpenAI
- reply_builder: A reply while it arrives
- schemas: JSON Schemas as providers take them
- sse: bytes of a provider's stream to events, whatever the chunks
"""
