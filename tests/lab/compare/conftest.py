"""The text that comparisons are tried on."""

import json

import pytest

from tests.training import small


@pytest.fixture(scope="package")
def where(tmp_path_factory):
    """Prepared text whose words include the marks that encoders need."""
    place = small.data(tmp_path_factory.mktemp("text") / "data", documents=80)
    config = json.loads((place / "tokenizer_config.json").read_text())
    config |= {"cls_token": "w4", "sep_token": "w5", "mask_token": "w6", "pad_token": "w0"}
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    return place
