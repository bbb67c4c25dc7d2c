"""`openai:NAME`: OpenAI, or any server with its protocol, through the official SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from prowess._internal.json_values import JsonObject
from prowess.core.events import ModelReplied
from prowess.core.values import Message, ToolSpec
from prowess.errors import ConfigError
from prowess.models.model_info import find_window, takes_schemas
from prowess.models.providers import openai_chat, openai_responses
from prowess.models.providers.client import Provider, open_endpoint
from prowess.models.providers.message_order import arrange
from prowess.models.providers.reply_builder import OnDelta, begin_draft

Api = Literal["chat", "responses"]
PROVIDER = Provider(sdk="openai", address="https://api.openai.com/v1", variable="OPENAI_API_KEY")
_OPENAI_HOST = urlsplit(PROVIDER.address).hostname
_OF_MISTRAL = re.compile(r"[sx]tral", re.IGNORECASE)  # mistral, codestral, mixtral, …
_NO_PARAMS: Mapping[str, Any] = {}


class OpenAIModel:
    """Model of Chat Completions or of the Responses API."""

    protocol = "tools"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None = None,
        api: Api | None = None,
        params: Mapping[str, Any] = _NO_PARAMS,
        timeout_s: float = 600.0,
    ) -> None:
        self._name = name
        self._endpoint, self._options = open_endpoint(
            PROVIDER, self.name, api_key=api_key, base_url=base_url, params=params, timeout_s=timeout_s
        )
        address = urlsplit(self._endpoint.where.address)
        self._is_openai = address.hostname == _OPENAI_HOST
        self._is_mistral = _OF_MISTRAL.search(f"{name} {address.hostname}") is not None
        usual = "responses" if self._is_openai else "chat"
        wanted = api or params.get("api") or usual
        self.api: Api = _checked_api(self.name, wanted)
        self._wire = openai_responses if self.api == "responses" else openai_chat

    @property
    def name(self) -> str:
        return f"openai:{self._name}"

    @property
    def context_tokens(self) -> int | None:
        configured = self._options.context_tokens
        return configured or find_window(self._name)

    @property
    def schemas(self) -> bool:
        """True for models of OpenAI. Most other servers cannot combine a schema with tools."""
        configured = self._options.schemas
        if configured is not None:
            return configured
        return self._is_openai and takes_schemas("openai", self._name)

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        transcript = arrange(messages, short_ids=self._is_mistral, is_verbatim=self._is_openai)
        request = self._wire.render_request(transcript, tools, schema)
        body = self._body(request)
        client = self._endpoint.client()
        if self.api == "responses":
            create = client.responses.with_streaming_response.create
            said = {"input": body.pop("input")}
        else:
            create = client.chat.completions.with_streaming_response.create
            said = {"messages": body.pop("messages")}
        opened = create(model=self._name, stream=self._options.stream, extra_body=body, **said)
        draft = begin_draft(messages, tools, on_delta)
        await self._endpoint.exchange(opened, self._wire.read_event, draft)
        return draft.reply()

    def _body(self, body: JsonObject) -> JsonObject:
        """Adds the parameters to a request; those of the configuration win."""
        options = self._options
        given = dict(options.body)
        text = given.get("text")
        if isinstance(text, Mapping) and "text" in body:  # keeps options such as verbosity
            given["text"] = {**text, **body["text"]}
        if self.api == "chat" and options.stream:
            body["stream_options"] = {"include_usage": True}
        if options.max_tokens is not None:
            name = self._length_name()
            body[name] = options.max_tokens
        return {**body, **given}

    def _length_name(self) -> str:
        """Returns the name of the limit. Only OpenAI itself knows the new name in chat."""
        if self.api == "responses":
            return "max_output_tokens"
        return "max_completion_tokens" if self._is_openai else "max_tokens"

    def prepare(self) -> None:
        self._endpoint.prepare()

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _checked_api(model: str, api: Any) -> Api:
    if api not in ("chat", "responses"):
        message = f"The parameter api of {model} must be chat or responses, not {api!r}."[:300]
        raise ConfigError(message, code="model-params-invalid", hint="See docs/models.md.")
    return api
