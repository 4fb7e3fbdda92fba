"""The page /docs: every route with its fields and an example, without anything from the network."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>regard serve</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { border-bottom: 1px solid; margin-top: 2rem }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { overflow: auto; padding: .75rem; border: 1px solid; border-radius: .4rem }
td { padding: .15rem .75rem .15rem 0; vertical-align: top }
</style></head><body>
<h1>regard serve</h1>
<p>The description for programs is <a href="openapi.json">openapi.json</a>.</p>
{% for tag, routes in groups.items() %}<h2>{{ tag }}</h2>
{% for route in routes %}<h3><code>{{ route.method }} {{ route.path }}</code></h3>
<p>{{ route.summary }}</p>
{% if route.fields %}<table>{% for field in route.fields %}<tr>
<td><code>{{ field.name }}</code></td>
<td>{{ field.kind }}{{ ", required" if field.required else "" }}</td><td>{{ field.about }}</td></tr>
{% endfor %}</table>{% endif %}
{% if route.curl %}<pre>{{ route.curl }}</pre>{% endif %}
{% endfor %}{% endfor %}</body></html>"""


def page(description: dict[str, Any]) -> str:
    """Returns the page of an OpenAPI description."""
    schemas = description.get("components", {}).get("schemas", {})
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = schemas.get(str(body.get("schema", {}).get("$ref", "")).rpartition("/")[2], {})
            tag = (route.get("tags") or ["Server"])[0]
            groups.setdefault(tag, []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "summary": route.get("summary", ""),
                    "fields": fields(schema),
                    "curl": curl(method, path, schema),
                }
            )
    return Environment(autoescape=True).from_string(PAGE).render(groups=groups)


def fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "kind": kind_of(field),
            "required": name in required,
            "about": field.get("description", ""),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def kind_of(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        kinds = dict.fromkeys(kind_of(one) for one in field["anyOf"])
        return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    kind = str(field.get("type", field.get("$ref", "any").rpartition("/")[2]))
    return f"list of {kind_of(field['items'])}" if kind == "array" and "items" in field else kind


def curl(method: str, path: str, schema: dict[str, Any]) -> str:
    examples = schema.get("examples")
    if method != "post" or not examples:
        return ""
    body = json.dumps(examples[0], ensure_ascii=False)
    return f"curl -s http://127.0.0.1:8000{path} -H 'content-type: application/json' -d '{body}'"
