"""Bodies that schemathesis makes up from the OpenAPI description: no answer is a 500."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from tests.serve.running import Running

STATUSES = {200, 400, 404, 405, 408, 413, 429, 504}


@pytest.fixture
def description(served: Running) -> Any:
    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("description")


@schema.parametrize()
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
def test_no_request_breaks_the_server(case: Any) -> None:
    if isinstance(case.body, dict) and "max_tokens" in case.body:
        case.body["max_tokens"] = 3
    answer = case.call(timeout=30)
    assert answer.status_code in STATUSES, answer.text
    if answer.status_code != 200 and case.method != "HEAD":
        assert sorted(answer.json()["error"]) == ["code", "message", "param", "type"]
