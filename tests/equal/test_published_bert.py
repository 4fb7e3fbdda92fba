"""Real weights of two packages: a BERT of chemical reactions (rxnfp, Schwaller et al. 2021) and one
of antibodies (antiberty, Ruffolo et al. 2021). Both are pickled, and both leave gaps that other
directories do not: no class or no type in config.json, a class of their own, more labels than
names, a vocabulary whose last line does not end."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from regard.api import LoadedModel, load
from regard.core.errors import FormatError
from regard.formats.legacy import convert
from tests.equal.reference import all_close, close, layers, theirs
from tests.equal.test_bert import answers, inner, our_answers
from tests.refusals import refuses

REACTIONS = [
    "C C ( = O ) O . O C C >> C C ( = O ) O C C",
    "[Na+] . [OH-] . Br c 1 c c c c c 1 >> O c 1 c c c c c 1",
    "[MASK] C >> C [UNK] 中 🙂",
    "C " * 300,
]
ANTIBODIES = [
    "E V Q L V E S G G G L V Q P G G S L R",
    "[MASK] I Q [MASK] T Q S P",
    "e v x _ 中",
    "Y",
]


@dataclass(frozen=True)
class Specimen:
    package: str
    place: str
    kind: Any
    texts: list[str]
    says: dict[str, Any] = field(default_factory=dict)  # what config.json leaves out
    assumed: str = ""  # the class that is not one of transformers'
    heads: dict[str, int] | None = None  # those to ask for, if the class does not say them


SPECIMENS = {
    "reactions": Specimen(
        "rxnfp", "models/transformers/bert_pretrained", hf.BertForPreTraining, REACTIONS,
        {"architectures": ["BertForPreTraining"]},
    ),
    "reaction-classes": Specimen(
        "rxnfp", "models/transformers/bert_ft_10k_25s", hf.BertForSequenceClassification, REACTIONS
    ),
    "reaction-fingerprints": Specimen(
        "rxnfp", "models/transformers/bert_ft", hf.BertModel, REACTIONS,
        {"architectures": ["BertModel"]},
    ),
    "antibodies": Specimen(
        "antiberty", "trained_models/AntiBERTy_md_smooth", hf.BertModel, ANTIBODIES,
        assumed="AntiBERTy",
    ),
    "antibodies-masked": Specimen(
        "antiberty", "trained_models/AntiBERTy_md_smooth", hf.BertForMaskedLM, ANTIBODIES,
        heads={"masked": 0},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=SPECIMENS)
def specimen(request: pytest.FixtureRequest) -> Specimen:
    return SPECIMENS[request.param]


@pytest.fixture(scope="module")
def directory(specimen: Specimen, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published files, with the weights converted as `regard convert` does it."""
    spec = util.find_spec(specimen.package)
    if spec is None or spec.origin is None:
        pytest.skip(f"real weights: the package {specimen.package} is not installed")
    source = Path(spec.origin).parent / specimen.place
    if not (source / "pytorch_model.bin").is_file():
        pytest.skip(f"real weights: this version of {specimen.package} carries none")
    place = tmp_path_factory.mktemp("published") / "model"
    shutil.copytree(source, place)
    if not (place / "vocab.txt").is_file():
        shutil.copy(source.parent / "vocab.txt", place)
    config = json.loads((place / "config.json").read_text()) | specimen.says
    (place / "config.json").write_text(json.dumps(config))
    with refuses(FormatError, "regard convert"):
        load(place)
    convert(place)
    return place


@pytest.fixture(scope="module")
def reference(specimen: Specimen, directory: Path) -> Any:
    return specimen.kind.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def opened(specimen: Specimen, directory: Path) -> LoadedModel:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load(directory, heads=specimen.heads)
    texts = [str(warning.message) for warning in caught]
    assert any(specimen.assumed in text for text in texts) if specimen.assumed else True
    return model


@pytest.mark.parametrize("lower", [True, False])
def test_the_same_tokens(specimen: Specimen, directory: Path, lower: bool, tmp_path: Path) -> None:
    """Both packages read their vocabulary with case, and do not say so in a file."""
    for name in ("vocab.txt", "config.json", "special_tokens_map.json"):
        if (directory / name).is_file():
            shutil.copy(directory / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    shutil.copy(directory / "model.safetensors", tmp_path)
    mine, its = load(tmp_path).tokenizer, hf.BertTokenizer.from_pretrained(tmp_path)
    assert mine is not None
    for text in specimen.texts:
        expected = its(text).input_ids
        assert mine.encode(text) == expected
        assert mine.decode(expected) == its.decode(expected, skip_special_tokens=True)


@torch.no_grad()
def test_the_same_numbers(
    specimen: Specimen, directory: Path, opened: LoadedModel, reference: Any
) -> None:
    """Hidden states of every layer, and every head: guesses of words, next sentence, pooled row,
    classes."""
    tokenizer = hf.BertTokenizer.from_pretrained(directory, do_lower_case=False)
    for text in specimen.texts:
        tokens = tokenizer(text, return_tensors="pt").input_ids
        with layers(inner(reference).encoder.layer) as expected:
            result = reference(tokens)
        with layers(opened.model.blocks) as rows:
            hidden = opened.model(tokens)
        all_close(rows, expected)
        all_close(
            our_answers(specimen.kind, opened.model, hidden, None), answers(specimen.kind, result)
        )


@torch.no_grad()
def test_a_batch_padded_on_either_side(
    specimen: Specimen, directory: Path, opened: LoadedModel, reference: Any
) -> None:
    tokenizer = hf.BertTokenizer.from_pretrained(directory, do_lower_case=False)
    for side in ("left", "right"):
        batch = tokenizer(specimen.texts, padding=True, return_tensors="pt", padding_side=side)
        mask = batch.attention_mask.bool()
        hidden = opened.model(batch.input_ids, mask)
        mine = our_answers(specimen.kind, opened.model, hidden, mask)
        for i, text in enumerate(specimen.texts):
            alone = answers(specimen.kind, reference(**tokenizer(text, return_tensors="pt")))
            for answer, expected in zip(mine, alone, strict=True):
                close(answer[i][mask[i]] if answer.dim() == 3 else answer[i], expected[0])


@torch.no_grad()
def test_what_it_learned(specimen: Specimen, directory: Path, opened: LoadedModel) -> None:
    """A hidden word is guessed better than by chance: these are the trained weights."""
    if specimen.kind not in (hf.BertForPreTraining, hf.BertForMaskedLM):
        pytest.skip("it guesses no words")
    tokenizer = hf.BertTokenizer.from_pretrained(directory, do_lower_case=False)
    tokens = tokenizer(specimen.texts[0], return_tensors="pt").input_ids
    right = 0
    for at in range(1, tokens.size(1) - 1):
        hidden = tokens.clone()
        hidden[0, at] = tokenizer.mask_token_id
        right += int(opened.model.logits(opened.model(hidden))[0, at].argmax() == tokens[0, at])
    assert right / (tokens.size(1) - 2) > 0.5


@torch.no_grad()
def test_saved_it_opens_unchanged(
    specimen: Specimen, opened: LoadedModel, reference: Any, tmp_path: Path
) -> None:
    back = theirs(opened, tmp_path, specimen.kind)
    for name, value in reference.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
