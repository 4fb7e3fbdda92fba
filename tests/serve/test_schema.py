"""Requests that schemathesis makes up from the OpenAPI description: no answer is a 500."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.serve.running import Running

STATUSES = {200, 400, 404, 405, 408, 413, 429, 504}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_breaks_the_server(served: Running, mode: GenerationMode) -> None:
    description = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    names = [*served.models.models]
    seen: dict[int, int] = {}

    def run(case: Any) -> None:
        """Sends a request, half of the time to a model that is there."""
        body = case.body
        if isinstance(body, dict):
            if isinstance(body.get("model"), str) and len(body["model"]) % 2 == 0:
                body["model"] = names[len(body["model"]) % len(names)]
            if isinstance(body.get("max_tokens"), int):
                body["max_tokens"] = min(body["max_tokens"], 3)
        answer = case.call(timeout=30)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
        assert answer.status_code in STATUSES, answer.text
        if answer.status_code != 200 and case.method != "HEAD":
            assert sorted(answer.json()["error"]) == ["code", "message", "param", "type"]

    made_up = settings(
        max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None,
        phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    count = 0
    for result in description.get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and operation.method.upper() == "GET":
            continue  # nothing in it can be wrong
        made_up(given(case=operation.as_strategy(generation_mode=mode))(run))()
        count += 1
    assert count >= 15 and seen.get(400, 0) > 10
