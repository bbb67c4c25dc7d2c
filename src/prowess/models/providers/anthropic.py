"""`anthropic:NAME`: Anthropic itself, or any server that speaks its Messages API, through the official SDK."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.events import ModelReplied
from prowess.core.values import Message, ToolSpec
from prowess.models.providers.anthropic_messages import blocks_to_keep, read_event, render_request
from prowess.models.providers.client import Provider, open_endpoint
from prowess.models.providers.message_order import arrange
from prowess.models.providers.reply_builder import OnDelta, begin_draft
from prowess.models.windows import find_window

PROVIDER = Provider(sdk="anthropic", address="https://api.anthropic.com", variable="ANTHROPIC_API_KEY", added="/v1")
_NO_PARAMS: Mapping[str, Any] = {}
_KEPT_REPLIES = 256


class AnthropicModel:
    protocol = "tools"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None = None,
        params: Mapping[str, Any] = _NO_PARAMS,
        timeout_s: float = 600.0,
    ) -> None:
        self._name = name
        self._endpoint, self._options = open_endpoint(
            PROVIDER, self.name, api_key=api_key, base_url=base_url, params=params, timeout_s=timeout_s
        )
        self._thoughts: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()  # by the first call of a reply

    @property
    def name(self) -> str:
        return f"anthropic:{self._name}"

    @property
    def context_tokens(self) -> int | None:
        return self._options.context_tokens or find_window(self._name)

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        body = render_request(arrange(messages), tools, self._thoughts.get)
        client = self._endpoint.client()
        opened = client.messages.with_streaming_response.create(
            model=self._name,
            max_tokens=self._options.max_tokens or (16_384 if self._name.startswith("claude-") else 4096),
            messages=body.pop("messages"),
            stream=self._options.stream,
            timeout=client.timeout,  # said again, or the SDK refuses a long reply that is not streamed
            extra_body={**body, **self._options.body, **self._form(schema)},
        )
        draft = begin_draft(messages, tools, on_delta)
        await self._endpoint.exchange(opened, read_event, draft)
        reply = draft.reply()
        if kept := blocks_to_keep(draft):
            self._thoughts[reply.calls[0].id] = kept
            while len(self._thoughts) > _KEPT_REPLIES:
                self._thoughts.popitem(last=False)
        return reply

    def _form(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        if schema is None:
            return {}
        from anthropic import transform_schema

        try:
            fitting = transform_schema(dict(schema))
        except ValueError:  # it has a form that the SDK does not know; the provider says more exactly what is wrong
            fitting = dict(schema)
        given = self._options.body.get("output_config")
        kept = given if isinstance(given, Mapping) else {}
        return {"output_config": {**kept, "format": {"type": "json_schema", "schema": fitting}}}

    async def aclose(self) -> None:
        await self._endpoint.aclose()
