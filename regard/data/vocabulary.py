"""Trains tokenizers. One data directory serves every model, so each tokenizer has all special
tokens.

Two traps are avoided here. A script without spaces makes one "word" of a whole page, which trainers
store many times over and which is slow to encode: every kind but gpt2-bpe cuts runs of letters at
a bounded length, by a rule that stands in tokenizer.json. And the library's trainers number the
forms of characters in the order of a hash that differs from run to run: they get those forms in a
fixed order, so that the same text gives the same files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from string import punctuation
from typing import Any
from unicodedata import category

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Fast

from regard.core.errors import InputError, UnknownName
from regard.data.corpus import ROLES
from regard.data.special_tokens import SPELLINGS, add_roles, configuration
from regard.data.tokenizer import Tokenizer

KINDS = tuple(SPELLINGS)
DEFAULT = {"words": 32768, "characters": 65536}
# The entries of a vocabulary of pieces of words, up to so many bytes of text. A small text has too
# few occurrences of rare pieces to learn them, and each entry costs its operations at every token.
BY_TEXT = ((4e6, 4096), (4e7, 8192), (4e8, 16384))
LARGEST = 32768
PIECES = ("bytes-bpe", "gpt2-bpe", "bpe", "wordpiece", "unigram")
LOSSLESS = ("bytes-bpe", "gpt2-bpe", "bytes")
RUN, WORD = 16, 64  # most characters in a run of an unspaced script, and of any other

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
# GPT-2's own rule, with bounds; it splits as GPT-2 does wherever a run of letters is shorter.
GPT2 = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{UNSPACED}]{{1,{RUN}}}| ?[\p{{L}}&&[^{UNSPACED}]]{{1,{WORD}}}"
    rf"| ?\p{{N}}{{1,{WORD}}}| ?[^\s\p{{L}}\p{{N}}{UNSPACED}]{{1,{WORD}}}"
    rf"|\s{{1,{WORD}}}(?!\S)|\s{{1,{WORD}}}"
)
BOUNDED = rf"[{UNSPACED}]{{1,{RUN}}}|[^{UNSPACED}]{{1,{WORD}}}"
# Words and punctuation are separate; `<unk>` and the `@-@` of tokenized corpora stay whole.
WORDS = rf"<unk>|@[-,.]@|[{UNSPACED}]|[\w&&[^{UNSPACED}]]{{1,{WORD}}}|[^\w\s{UNSPACED}]{{1,{RUN}}}"
# A text that begins with a word of a spaced script gets the `▁` that the word has inside a text.
BEGINNING = rf"\A(?=[^\s{UNSPACED}\x{{3000}}-\x{{303f}}“”‘’…—])"


def train(
    kind: str, texts: Sequence[str], *, vocab_size: int | None, lower: bool | None, marks: int
) -> Tokenizer:
    """Trains a tokenizer with `vocab_size` entries, with special tokens and `marks` sentinels."""
    if kind not in KINDS:
        raise UnknownName("tokenizer", kind, KINDS, "(or give the directory of an existing one)")
    if lower is None:
        lower = kind == "bpe"  # GPT-1's text is lowercase
    wanted = vocab_size if vocab_size is not None else usual_size(kind, texts, marks)
    room = wanted - len(ROLES) - marks
    least = 256 if kind in LOSSLESS else 16
    if room < least:
        raise InputError(
            f"--vocab-size {wanted:,} has no room: {kind} needs {least} entries, {len(ROLES)} "
            f"special tokens and {marks} sentinels; give {least + len(ROLES) + marks:,} or more, "
            "or fewer --sentinels"
        )
    fast: Fast = TRAINERS[kind](texts, room, lower)
    add_roles(fast, kind, marks)
    reached = fast.get_vocab_size()
    if vocab_size is not None and reached != wanted:
        raise InputError(
            f"--vocab-size {wanted:,} cannot be reached: this text gives {reached:,} entries with "
            f"{kind}; ask for fewer, give more text, or leave --vocab-size out"
        )
    files = {
        "tokenizer.json": fast.to_str(pretty=True).encode(),
        "tokenizer_config.json": json.dumps(configuration(kind, marks), indent=2).encode(),
    }
    return Tokenizer(fast, files)


def usual_size(kind: str, texts: Sequence[str], marks: int) -> int:
    """Returns the size of a vocabulary for which none was asked."""
    if kind not in PIECES:
        return DEFAULT.get(kind, 256 + len(ROLES) + marks)
    read = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return next((size for most, size in BY_TEXT if read <= most), LARGEST)


def lowered(lower: bool) -> normalizers.Normalizer | None:
    return normalizers.Lowercase() if lower else None


def cut(rule: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(rule), "isolated")


def bytes_bpe(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains GPT-2's byte-level BPE: no text is unknown, and decoding gives the exact text."""
    return learn_bytes(byte_level(models.BPE(), lower), texts, room)


def gpt2_bpe(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains the same with GPT-2's own rule, in which a run of letters has no bound: other programs
    know this rule by its name."""
    fast = byte_level(models.BPE(), lower)
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return learn_bytes(fast, texts, room)


def learn_bytes(fast: Fast, texts: Sequence[str], room: int) -> Fast:
    fast.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=room,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=list(byte_letters()),
        ),
    )
    return fast


def raw_bytes(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Builds a tokenizer in which the id of a byte is its value."""
    letters = {letter: value for value, letter in enumerate(byte_letters())}
    return byte_level(models.BPE(vocab=letters, merges=[]), lower)


def byte_level(model: models.Model, lower: bool) -> Fast:
    fast = Fast(model)
    fast.normalizer = lowered(lower)
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [cut(GPT2), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    fast.decoder = decoders.ByteLevel()
    return fast


def byte_letters() -> list[str]:
    """Returns GPT-2's letter for each byte: itself if it is printable, else one from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(value if value in printable else next(others)) for value in range(256)]


def bert_like(model: models.Model, lower: bool) -> Fast:
    """Builds a tokenizer with BERT's normalizer (also used for GPT-1): a Chinese character is a
    word."""
    fast = Fast(model)
    fast.normalizer = normalizers.BertNormalizer(lowercase=lower)
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut(BOUNDED)])
    return fast


def bpe(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains GPT-1's BPE, in which `</w>` marks the end of a word."""
    roles = SPELLINGS["bpe"]
    shape: dict[str, Any] = {"unk_token": roles["unknown"], "end_of_word_suffix": "</w>"}
    fast = bert_like(models.BPE(**shape), lower)
    learned = learn_forms(
        fast,
        texts,
        room,
        roles,
        trainers.BpeTrainer,
        {"end_of_word_suffix": "</w>"},
        inside_words(fast, texts),
    )
    merges = [tuple(pair) for pair in learned["merges"]]
    fast = bert_like(models.BPE(vocab=learned["vocab"], merges=merges, **shape), lower)
    fast.decoder = decoders.BPEDecoder(suffix="</w>")
    return fast


def wordpiece(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains BERT's WordPiece, in which `##` marks a piece that continues a word."""
    roles = SPELLINGS["wordpiece"]
    fast = bert_like(models.WordPiece({}, unk_token=roles["unknown"]), lower)
    learned = learn_forms(
        fast, texts, room, roles, trainers.WordPieceTrainer, {"continuing_subword_prefix": "##"}
    )
    ids = learned["vocab"]
    fast = bert_like(models.WordPiece(ids, unk_token=roles["unknown"]), lower)
    fast.decoder = decoders.WordPiece()
    fast.post_processor = processors.BertProcessing(
        (roles["sep"], ids[roles["sep"]]), (roles["cls"], ids[roles["cls"]])
    )
    return fast


def learn_forms(
    fast: Fast,
    texts: Sequence[str],
    room: int,
    roles: dict[str, str],
    trainer: Any,
    affix: dict[str, str],
    bare: set[str] | None = None,
) -> dict[str, Any]:
    """Trains a model in which a character has two forms, alone and with an affix.

    The first training has no room and only finds the forms; in the second they get numbers. The
    alphabet shrinks until its forms leave a quarter of the room. `bare` holds the characters that
    need the form without the affix; the library adds it for all, so the others are removed again.
    """
    letters = frequent(fast, texts)
    most = room
    while True:
        alphabet = letters[:most]
        idle = set() if bare is None else set(alphabet) - bare
        options: dict[str, Any] = {
            "min_frequency": 2,
            "show_progress": False,
            "limit_alphabet": len(alphabet),
            "initial_alphabet": alphabet,
            **affix,
        }
        fast.train_from_iterator(texts, trainer(vocab_size=0, special_tokens=[], **options))
        forms = sorted(set(fast.get_vocab()).difference(alphabet))
        if len(alphabet) + len(forms) - len(idle) <= room * 3 // 4:
            break
        most = len(alphabet) * 3 // 4
    size = room + len(roles) + len(idle)
    first = [*roles.values(), *forms]
    fast.train_from_iterator(texts, trainer(vocab_size=size, special_tokens=first, **options))
    learned: dict[str, Any] = json.loads(fast.to_str())["model"]
    ranked = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    entries = (entry for entry in ranked if entry not in idle)
    return {**learned, "vocab": {entry: i for i, entry in enumerate(entries)}}


def inside_words(fast: Fast, texts: Sequence[str]) -> set[str]:
    """Returns the characters that another one of the same word follows (perhaps a few too many)."""
    pairs: set[tuple[str, str]] = set()
    for text in texts:
        normal = fast.normalizer.normalize_str(text)
        pairs.update(pairwise(normal))
    return {a for a, b in pairs if not (apart(a) or apart(b))}


def apart(letter: str) -> bool:
    return letter.isspace() or letter in punctuation or category(letter)[0] == "P"


def frequent(fast: Fast, texts: Sequence[str]) -> list[str]:
    """Returns the characters without white space, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(fast.normalizer.normalize_str(text) if fast.normalizer else text)
    ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))
    return [letter for letter in ranked if not letter.isspace()]


def words(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains a vocabulary of words, the most frequent first, as adaptive softmax needs them."""
    roles = SPELLINGS["words"]
    fast = Fast(models.WordLevel({}, unk_token=roles["unknown"]))
    fast.normalizer = lowered(lower)
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    fast.train_from_iterator(
        texts,
        trainers.WordLevelTrainer(
            vocab_size=room + 1, min_frequency=1, show_progress=False, special_tokens=[]
        ),
    )
    known = fast.get_vocab()
    ranked = [word for word in sorted(known, key=known.__getitem__) if word != roles["unknown"]]
    entries = [*roles.values(), *ranked[:room]]
    ids = {entry: i for i, entry in enumerate(entries)}
    fast.model = models.WordLevel(ids, unk_token=roles["unknown"])
    return fast


def characters(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Builds a BPE without merges: one id per character (also white space), most frequent first."""
    roles = SPELLINGS["characters"]
    fast = Fast(models.BPE())
    fast.normalizer = lowered(lower)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.lower() if lower else text)
    ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))[:room]
    ids = {entry: i for i, entry in enumerate([*roles.values(), *ranked])}
    fast.model = models.BPE(vocab=ids, merges=[], unk_token=roles["unknown"])
    fast.pre_tokenizer = cut(GPT2)
    fast.decoder = decoders.Fuse()
    return fast


def unigram(texts: Sequence[str], room: int, lower: bool) -> Fast:
    """Trains the tokenizer of XLNet and T5: white space is `▁`, and runs of it count once."""
    from regard.data.unigram import learn

    fast = Fast(models.Unigram())
    fast.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            *([normalizers.Lowercase()] if lower else []),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Replace(Regex(BEGINNING), " "),
        ]
    )
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="never"), cut(BOUNDED)]
    )
    counts: Counter[str] = Counter()
    for text in texts:
        normal = fast.normalizer.normalize_str(text)
        counts.update(word for word, _ in fast.pre_tokenizer.pre_tokenize_str(normal))
    pieces = learn(counts, room)
    # Only `<unk>` is in the model, since a piece of the model is found in any text that spells it.
    fast.model = models.Unigram([(SPELLINGS["unigram"]["unknown"], 0.0), *pieces], unk_id=0)
    fast.decoder = decoders.Metaspace(prepend_scheme="always")
    return fast


TRAINERS = {
    "bytes-bpe": bytes_bpe,
    "gpt2-bpe": gpt2_bpe,
    "bpe": bpe,
    "wordpiece": wordpiece,
    "unigram": unigram,
    "words": words,
    "characters": characters,
    "bytes": raw_bytes,
}
