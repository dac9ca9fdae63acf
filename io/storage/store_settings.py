"""The settings of object stores in the environment, checked before a client sees them.

The clients are Rust libraries that end with a panic where a line end stands in a key, or an address has no ``http://``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from ddcore.base.errors import UsageError

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_SWITCHES = (
    "AWS_ALLOW_HTTP", "AWS_SKIP_SIGNATURE", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_S3_EXPRESS",
    "AWS_UNSIGNED_PAYLOAD", "AWS_REQUEST_PAYER", "AWS_IMDSV1_FALLBACK", "AWS_DISABLE_TAGGING",
)  # fmt: skip
_ON_OFF = ("1", "true", "on", "yes", "y", "0", "false", "off", "no", "n")
_EXAMPLE = "for example: AWS_ENDPOINT_URL=http://localhost:9000"


def check_settings(environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a setting that no store can have; the message has its name, and never a key."""
    for name in (*_ENDPOINTS, *_REGIONS, *_KEYS, "AWS_SESSION_TOKEN", *_SWITCHES):
        if value := environment.get(name, ""):
            _check_characters(name, value)
    for name in (*_KEYS, *_ENDPOINTS):
        if environment.get(name) == "":
            raise UsageError(f"{name}: is set and empty", "give it its value, or unset it")
    for name in _ENDPOINTS:
        if value := environment.get(name, ""):
            _check_endpoint(name, value)
    for name in _REGIONS:
        if (value := environment.get(name, "")) and not re.fullmatch("[A-Za-z0-9._-]+", value):
            raise UsageError(f"{name}: {value!r} is no region", "write a name such as us-east-1")
    for name in _SWITCHES:
        if (value := environment.get(name, "")) and value.lower() not in _ON_OFF:
            raise UsageError(f"{name}: {value!r} is neither true nor false", "write true or false, or unset it")


def _check_characters(name: str, value: str) -> None:
    if value[-1] in "\r\n":
        what = "ends with a line end"
    elif value != value.strip():
        what = f"{'begins' if value[0].isspace() else 'ends'} with a blank"
    elif any(not "!" <= character <= "~" for character in value):
        what = "has a blank, a control character or one that is not ASCII"
    else:
        return
    raise UsageError(f"{name}: the value {what}", "check how it is set: a copied line end, a quote, a CRLF file?")


def _check_endpoint(name: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"{name}: {value!r} is no address of a store: {error}", _EXAMPLE) from error
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{name}: an address has no place for credentials",
            "put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if parts.scheme not in ("http", "https") or not value.startswith(parts.scheme):
        what = "does not begin with http:// or https://"
    elif not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.%]+", host):
        what = "has no host after http://"
    elif parts.query or parts.fragment or "?" in value or "#" in value:
        what = "has more than a host, a port and a path"
    else:
        return
    raise UsageError(f"{name}: {value!r} {what}", _EXAMPLE)
