"""An address and what the caller passes along become an opened bucket.

Where it is, as whom it is asked and how a request is signed comes from the variables that the providers' own tools know
(AWS_*, GOOGLE_*, AZURE_*), in the environment that the caller passes, and from options, which win. Nothing here reads
the environment of the process. Only when no key is passed does obstore look for one itself, as on a machine that has a
role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prowess._internal.urls import is_loopback, shown_url
from prowess.errors import ConfigError, MissingExtra

SCHEMES = ("s3", "gs", "az")

_URL = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,220})(?:/([\w.~=-]+(?:/[\w.~=-]+)*))?/?", re.ASCII)
_MOST_PREFIX_BYTES = 200  # a key has at most 1024 bytes, and ours need the rest
_VARIABLES = {
    "s3": re.compile(
        r"AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION|ENDPOINT|ENDPOINT_URL"
        r"|ENDPOINT_URL_S3|VIRTUAL_HOSTED_STYLE_REQUEST|SKIP_SIGNATURE|UNSIGNED_PAYLOAD|REQUEST_PAYER|S3_EXPRESS"
        r"|SERVER_SIDE_ENCRYPTION|SSE_KMS_KEY_ID|SSE_BUCKET_KEY_ENABLED|CHECKSUM_ALGORITHM|DISABLE_BULK_DELETE"
        r"|ROLE_ARN|ROLE_SESSION_NAME|WEB_IDENTITY_TOKEN_FILE|CONTAINER_CREDENTIALS_RELATIVE_URI"
        r"|CONTAINER_CREDENTIALS_FULL_URI|CONTAINER_AUTHORIZATION_TOKEN_FILE|METADATA_ENDPOINT|STS_ENDPOINT)"
    ),
    "gs": re.compile(
        r"GOOGLE_(?:SERVICE_ACCOUNT|SERVICE_ACCOUNT_PATH|SERVICE_ACCOUNT_KEY|APPLICATION_CREDENTIALS|BEARER_TOKEN"
        r"|BASE_URL|SKIP_SIGNATURE)"
    ),
    "az": re.compile(
        r"AZURE_(?:STORAGE_)?(?:ACCOUNT_NAME|ACCOUNT_KEY|ACCESS_KEY|SAS_TOKEN|SAS_KEY|TOKEN|CLIENT_ID|CLIENT_SECRET"
        r"|TENANT_ID|AUTHORITY_HOST|ENDPOINT|USE_EMULATOR|FEDERATED_TOKEN_FILE|MSI_ENDPOINT|USE_AZURE_CLI"
        r"|SKIP_SIGNATURE)"
    ),
}
_FAMILY = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_ENDPOINTS = ("endpoint", "base_url", "google_base_url", "azure_endpoint", "azure_storage_endpoint")
_LONG = ("", "aws_")
KEY_HINTS = {
    "s3": "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; profiles in ~/.aws are not read.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY.",
}


class Address(NamedTuple):
    scheme: str
    bucket: str
    prefix: str


def parse_address(url: str) -> Address:
    match = _URL.fullmatch(url)
    prefix = match[3] or "" if match else ""
    if not match or {".", ".."} & set(prefix.split("/")) or len(prefix) > _MOST_PREFIX_BYTES:
        raise ConfigError(
            f"{shown_url(url)[:200]} is no address of a bucket.",
            code="artifacts-url",
            hint="Write s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, in letters, digits and ._~=-, "
            f"at most {_MOST_PREFIX_BYTES} of them in the prefix; keys go into the environment.",
        )
    return Address(match[1], match[2], prefix)


def open_bucket(
    address: Address, url: str, environ: Mapping[str, str], options: Mapping[str, Any], timeout_s: float
) -> Any:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ModuleNotFoundError:
        raise MissingExtra("objects", wanted_for=f"Artifacts in {address.scheme}://…") from None
    kinds: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    passed = {name.lower(): value for name, value in environ.items() if _VARIABLES[address.scheme].fullmatch(name)}
    config: dict[str, Any] = {name: value for name, value in passed.items() if value}
    given = dict(options)
    variable = f"{_FAMILY[address.scheme]}_ALLOW_HTTP"
    allow_http = str(given.pop("allow_http", environ.get(variable, ""))).lower() in ("1", "true")
    extra = _s3_settings(address.bucket, config, given) if address.scheme == "s3" else {}
    config |= given
    try:
        return kinds[address.scheme](
            address.bucket,
            prefix=address.prefix or None,
            config=config,
            client_options={
                "allow_http": _may_be_plain(config, url, allow_http, variable),
                "connect_timeout": timedelta(seconds=min(5.0, timeout_s)),
                "timeout": timedelta(seconds=timeout_s),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_s)},
            **extra,
        )
    except (BaseError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        for value in config.values():
            reason = reason.replace(str(value), "…") if len(str(value)) > 3 else reason
        raise ConfigError(
            f"{url} cannot be used with these settings: {reason.rstrip('.')}.",
            code="artifacts-options",
            hint=KEY_HINTS[address.scheme],
        ) from None


def _s3_settings(bucket: str, config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """All that says where, as whom and how, said: what is left out, obstore would take from the process."""

    def take(*names: str) -> Any:
        """The setting under any of its names, which is then nowhere else; an option wins."""
        values = [place.pop(f"{long}{name}", None) for place in (given, config) for name in names for long in _LONG]
        return next((value for value in values if value not in (None, "")), None)

    key, secret, token = take("access_key_id"), take("secret_access_key"), take("session_token", "token")
    region = take("region", "default_region") or "us-east-1"
    in_host = str(take("virtual_hosted_style_request") or "false").lower()
    amazon = f"https://{f'{bucket}.' if in_host == 'true' else ''}s3.{region}.amazonaws.com"
    endpoint = take("endpoint_url_s3", "endpoint_url", "endpoint") or amazon
    config |= {
        "region": region,
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": in_host,
        "skip_signature": str(take("skip_signature") or "false").lower(),
        "conditional_put": "etag",
    }
    if (key is None) != (secret is None):
        raise ConfigError(
            "Of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set.",
            code="artifacts-options",
            hint=KEY_HINTS["s3"],
        )
    if key is None:
        return {}
    credential = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    return {"credential_provider": lambda: credential}


def _may_be_plain(config: Mapping[str, Any], url: str, allowed: bool, variable: str) -> bool:
    """Whether a request may go without encryption: to this machine, or when somebody said so."""
    for endpoint in (str(config[name]) for name in _ENDPOINTS if name in config):
        address = urlsplit(endpoint)
        if address.scheme == "http":
            if not allowed and not is_loopback(address.hostname or ""):
                raise ConfigError(
                    f"The endpoint for {url} is not encrypted: {shown_url(endpoint)}.",
                    code="artifacts-not-encrypted",
                    hint=f"Use https, or set {variable}=true if nobody can listen in between.",
                )
            return True
    return False
