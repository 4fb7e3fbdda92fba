"""The page /docs: every route with its fields and an example, without anything from the network."""

from __future__ import annotations

import json
from typing import Any

from regard.core.text import Bilingual
from regard.report import pages
from regard.report.charts import Text
from regard.report.pages import both_of, filled, translated, words


def page(description: dict[str, Any]) -> str:
    """Returns the page of an OpenAPI description."""
    schemas = description.get("components", {}).get("schemas", {})
    groups: dict[str, list[dict[str, Any]]] = {}  # by their tag
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = schemas.get(str(body.get("schema", {}).get("$ref", "")).rpartition("/")[2], {})
            tag = (route.get("tags") or ["Server"])[0]
            groups.setdefault(tag, []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "summary": in_both(route.get("summary", "")),
                    "fields": fields(schema),
                    "curl": curl(method, path, schema),
                }
            )
    named = [(in_both(tag), routes) for tag, routes in groups.items()]
    return pages.page("routes", words("routes")["title"], locales=["routes"], groups=named)


def in_both(text: str) -> Text:
    return translated(text, "routes")


def fields(schema: dict[str, Any]) -> list[tuple[str, Text, str, Text]]:
    """Returns a row for each field: its name, its kind, whether it is required, what it means."""
    required = schema.get("required", [])
    return [
        (name, kind_of(field), "✓" if name in required else "",
         in_both(field.get("description", "")))
        for name, field in schema.get("properties", {}).items()
    ]  # fmt: skip


def kind_of(field: dict[str, Any]) -> Bilingual:
    """Returns what a value may be; values to choose from and names of schemas stay as they are."""
    known = words("routes")
    if "anyOf" in field:
        kinds = [kind_of(one) for one in field["anyOf"] if one.get("type") != "null"]
        return Bilingual(
            *(word.join(dict.fromkeys(names))
              for word, names in zip(known["or"], zip(*kinds, strict=True), strict=True))
        )  # fmt: skip
    if "enum" in field:
        return both_of(", ".join(map(str, field["enum"])))
    kind = str(field.get("type", field.get("$ref", "any").rpartition("/")[2]))
    if kind == "array" and "items" in field:
        return filled(known["list_of"], items=kind_of(field["items"]))
    return known.get(f"kind_{kind}") or both_of(kind)


def curl(method: str, path: str, schema: dict[str, Any]) -> str:
    examples = schema.get("examples")
    if method != "post" or not examples:
        return ""
    body = json.dumps(examples[0], ensure_ascii=False)
    return f"curl -s http://127.0.0.1:8000{path} -H 'content-type: application/json' -d '{body}'"
