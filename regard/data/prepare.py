"""`regard prepare`: turns text of any format into a data directory that every model trains on.

The text is read twice: first to count documents and to sample text for the tokenizer, then to
encode it. All files are written to a temporary directory, which is moved into place when it is
complete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from regard.core.atomic_dir import check_place, workplace
from regard.core.errors import InputError, UnknownName
from regard.core.options import SEED, Option
from regard.core.progress import Progress
from regard.data.chunks import Chunking
from regard.data.corpus import MARKER, Special, read_marker, write_marker
from regard.data.encode import DocumentEncoder
from regard.data.files import ReadCounts
from regard.data.sample import Sample, size
from regard.data.sentences import SentenceSplitter
from regard.data.sources import SourceOptions, TextPiece, check_prose, documents, find, pairs
from regard.data.special_tokens import completed, special_of
from regard.data.splits import FEW, MANY, TRAIN, SplitBounds, SplitShares, key, stretched
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import KINDS, train

WIDEST = 2**16  # the number of ids that 16 bits can hold


@dataclass(frozen=True)
class PreparePlan:
    """All settings that decide what a data directory holds."""

    sources: tuple[str, ...]
    out: Path
    reading: SourceOptions = field(default_factory=SourceOptions)
    pairs: Annotated[
        bool,
        Option("Read pairs (source, target): a table of two columns, or two parallel text files."),
    ] = False
    tokenizer: Annotated[
        str,
        Option("The tokenizer to train: bytes-bpe (as GPT-2), gpt2-bpe (split exactly as GPT-2, "
               "for GGUF), bpe (GPT-1), wordpiece (BERT), unigram (XLNet, T5), words, characters, "
               "bytes; or the directory of an existing one.", metavar="KIND|PATH"),
    ] = "bytes-bpe"  # fmt: skip
    vocab_size: Annotated[
        int | None,
        Option("The size of the vocabulary, with its special tokens.", "--vocab-size", "N",
               "4096 to 32768, by the size of the text; words: 32768"),
    ] = None  # fmt: skip
    lower: Annotated[bool | None, Option("Lowercase the text.", default="only bpe, as GPT-1")] = (
        None
    )
    sentinels: Annotated[int, Option("How many <extra_id_…> tokens (T5).", metavar="N")] = 100
    shares: SplitShares = field(default_factory=SplitShares)
    chunking: Chunking = field(default_factory=Chunking)
    seed: Annotated[int, SEED] = 0
    force: Annotated[bool, Option("Replace the output if it exists.")] = False

    def __post_init__(self) -> None:
        if self.pairs and self.chunking.kind != "none":
            raise InputError(
                "--chunk cuts documents, but the pairs of --pairs cannot be cut; leave one out"
            )
        if not 0 <= self.sentinels <= 10_000:
            raise InputError(f"--sentinels {self.sentinels} must be from 0 to 10,000")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed {self.seed} must be from 0 to 2**63 - 1")


@dataclass
class CorpusSurvey:
    """The results of the first reading."""

    documents: int = 0
    keys: set[int] = field(default_factory=set)
    sizes: list[int] = field(default_factory=list)  # the bytes of the first documents
    sample: Sample | None = None

    @property
    def few(self) -> bool:
        return self.documents < FEW


def prepare(plan: PreparePlan, *, quiet: bool = True) -> dict[str, Any]:
    """Makes the data directory and returns a summary.

    >>> prepare(PreparePlan(("book.txt",), Path("data")))["splits"]["train"]["tokens"]
    """
    began = time.monotonic()
    check_place(plan.out, plan.force, MARKER)
    existing = opened_tokenizer(plan) if plan.tokenizer not in KINDS else None
    progress = Progress(quiet=quiet)
    with workplace(plan.out, plan.force, MARKER) as work:
        try:
            summary = Preparation(plan, work, existing, progress).run()
        finally:
            progress.close()
    return {**summary, "seconds": round(time.monotonic() - began, 3)}


class Preparation:
    """One preparation, from the sources to data.json."""

    def __init__(
        self,
        plan: PreparePlan,
        work: Path,
        existing: tuple[Tokenizer, Special] | None,
        progress: Progress,
    ) -> None:
        self.plan, self.work, self.existing, self.progress = plan, work, existing, progress
        self.sources = find(plan.sources, plan.reading, work)
        for source in () if plan.pairs or plan.reading.form else self.sources:
            check_prose(source)
        self.total = sum(source.size for source in self.sources)
        self.notes: list[str] = []

    def run(self) -> dict[str, Any]:
        plan = self.plan
        look = self.look()
        if not look.documents:
            raise self.nothing()
        cut = look.few and plan.shares.any and not plan.pairs
        division = SplitBounds()
        if plan.shares.any and not cut:
            many = len(look.keys) >= MANY
            by_rank = SplitBounds.by_rank(plan.shares, look.keys)
            division = SplitBounds.by_chance(plan.shares) if many else by_rank
        if self.existing is not None:
            tokenizer, special = self.existing
        else:
            tokenizer = self.trained(look, division, cut)
            special = special_of(tokenizer, plan.tokenizer)
        vocab_size = max(tokenizer.ready.get_vocab().values()) + 1
        dtype = "uint16" if vocab_size <= WIDEST else "uint32"
        tally = ReadCounts()
        with DocumentEncoder(tokenizer.ready, special, self.work, dtype, plan.chunking) as encoder:
            if plan.pairs:
                self.encode_pairs(encoder, division, tally)
            else:
                self.encode_text(encoder, division, look.sizes if cut else None, tally)
            splits = encoder.close()
        if not added(splits)["documents"]:
            raise self.nothing()
        facts = {
            "kind": "pairs" if plan.pairs else "text",
            "vocab_size": vocab_size,
            "dtype": dtype,
            "special": asdict(special),
            "tokenizer": plan.tokenizer if self.existing is None else "existing",
            "splits": splits,
            "chunk": asdict(plan.chunking),
            "seed": plan.seed,
            "shares": asdict(plan.shares),
            "cut_to_split": cut,
            "broken": tally.broken,
            "sources": list(plan.sources),
        }
        completed(tokenizer, special).save(self.work)
        (self.work / "standard-input").unlink(missing_ok=True)
        write_marker(self.work, facts)
        return self.summary(facts, tally)

    def nothing(self) -> InputError:
        return InputError(f"there is no text in {', '.join(self.plan.sources)}; give other sources")

    # -- the first reading

    def look(self) -> CorpusSurvey:
        """Counts documents (only up to MANY) and samples them if a tokenizer is to be trained."""
        look = CorpusSurvey(sample=Sample(self.plan.seed) if self.existing is None else None)
        if look.sample is None and not self.plan.shares.any:
            look.documents = MANY  # neither a split nor a tokenizer needs the first reading
            return look
        number, length, first = 0, 0, True
        tally = ReadCounts()
        for text, beginning, ends in self.stretches(tally):
            if first:
                number, length = key(self.plan.seed, beginning), 0
            if look.sample is not None:
                look.sample.add(look.documents, number, length, text)
            length += size(text)
            if ends:
                if len(look.keys) < MANY:
                    look.keys.add(number)
                if look.few:
                    look.sizes.append(length)
                look.documents += 1
                if look.sample is None and len(look.keys) >= MANY:
                    break
            first = ends
            self.progress.step("looking", tally.read, self.total)
        return look

    def stretches(self, tally: ReadCounts) -> Iterator[tuple[str, str, bool]]:
        """Yields a piece of text, the text that decides its split, and whether its document ends
        here."""
        if self.plan.pairs:
            for source, target in pairs(self.sources, self.plan.reading, tally):
                yield f"{source}\n{target}", source, True
        else:
            for text, ends in documents(self.sources, self.plan.reading, tally):
                yield text, text, ends

    def trained(self, look: CorpusSurvey, division: SplitBounds, cut: bool) -> Tokenizer:
        """Trains a tokenizer on training text only, never on validation or test text."""
        assert look.sample is not None
        learning = 1 - self.plan.shares.valid - self.plan.shares.test
        texts = []
        for unit in look.sample.units:
            if cut:
                share = (learning * look.sizes[unit.document] - unit.start) / size(unit.text)
                texts.append(unit.text[: max(0, int(share * len(unit.text)))])
            elif division.of(unit.key) == TRAIN:
                texts.append(unit.text)
        if not look.sample.whole:
            read = sum(size(text) for text in texts)
            self.notes.append(f"the tokenizer was trained on an even sample of {read / 1e6:.0f} MB")
        if self.progress.shown:
            self.progress.say("training the tokenizer")
        plan = self.plan
        return train(plan.tokenizer, texts, vocab_size=plan.vocab_size, lower=plan.lower,
                     marks=plan.sentinels)  # fmt: skip

    # -- the second reading

    def encode_text(
        self,
        encoder: DocumentEncoder,
        division: SplitBounds,
        sizes: list[int] | None,
        tally: ReadCounts,
    ) -> None:
        """Encodes documents. `sizes` is given if they are few: then each is cut into the splits."""
        stream = documents(self.sources, self.plan.reading, tally)
        cutter, split, first = SentenceSplitter(), TRAIN, True
        for length in sizes or ():
            sentences = (
                (sentence, size(sentence))
                for piece in whole(stream)
                for sentence in cutter.feed(piece.text, ends=piece.ends)
            )
            for sentence, many, split, closes in stretched(sentences, self.plan.shares, length):
                encoder.add([sentence], split, many, closes=closes)
        if sizes is not None:
            return
        for piece in stream:
            if first:
                split = division.of(key(self.plan.seed, piece.text))
            encoder.add(
                cutter.feed(piece.text, ends=piece.ends), split, size(piece.text), closes=piece.ends
            )
            first = piece.ends
            self.progress.step("encoding", tally.read, self.total)

    def encode_pairs(
        self, encoder: DocumentEncoder, division: SplitBounds, tally: ReadCounts
    ) -> None:
        for source, target in pairs(self.sources, self.plan.reading, tally):
            split = division.of(key(self.plan.seed, source))
            length = size(source) + size(target)
            encoder.add([source, target], split, length, closes=True, pair=True)
            self.progress.step("encoding", tally.read, self.total)
        if tally.blank:
            self.notes.append(f"{tally.blank:,} pairs with an empty side were left out")

    # -- what was made

    def summary(self, facts: dict[str, Any], tally: ReadCounts) -> dict[str, Any]:
        plan = self.plan
        if facts["cut_to_split"]:
            self.notes.append(
                f"the text has fewer than {FEW} documents, so each was cut at sentence boundaries: "
                "its beginning is for training, its end for validation and test"
            )
        shares = {"train": 1.0, "valid": plan.shares.valid, "test": plan.shares.test}
        empty = [
            name for name, share in shares.items() if share and not facts["splits"][name]["tokens"]
        ]
        if empty:
            self.notes.append(f"nothing is in {' and '.join(empty)}, since the text is too short")
        if tally.broken:
            verb = "replaced" if plan.reading.broken == "replace" else "left out"
            self.notes.append(f"{tally.broken:,} places that are not UTF-8 were {verb}")
        if sum(split.get("repeated", 0) for split in facts["splits"].values()):
            self.notes.append("chunks overlap: tokens are repeated, but bytes are counted once")
        splits = {name: figures(split) for name, split in facts["splits"].items()}
        return {
            "out": str(plan.out),
            "kind": facts["kind"],
            "tokenizer": facts["tokenizer"],
            "vocab_size": facts["vocab_size"],
            **figures(added(facts["splits"])),
            "splits": splits,
            "broken": tally.broken,
            "notes": self.notes,
        }


def whole(stream: Iterator[TextPiece]) -> Iterator[TextPiece]:
    """Yields the pieces of one document."""
    for piece in stream:
        yield piece
        if piece.ends:
            return


def added(splits: dict[str, dict[str, Any]]) -> dict[str, Any]:
    names = ("documents", "sentences", "words", "tokens", "bytes", "unknown")
    return {name: sum(split[name] for split in splits.values()) for name in names}


def figures(split: dict[str, Any]) -> dict[str, Any]:
    tokens = split["tokens"]
    return {
        "documents": split["documents"],
        "sentences": split["sentences"],
        "words": split["words"],
        "tokens": tokens,
        "bytes": split["bytes"],
        "bytes_per_token": round(split["bytes"] / tokens, 3) if tokens else None,
        "unknown_share": round(split["unknown"] / tokens, 6) if tokens else None,
    }


def opened_tokenizer(plan: PreparePlan) -> tuple[Tokenizer, Special]:
    """Returns an existing tokenizer and its special tokens."""
    path = Path(plan.tokenizer)
    directory = path.parent if path.is_file() else path
    if not path.exists():
        raise UnknownName("tokenizer", plan.tokenizer, KINDS, "(and it is not a path either)")
    tokenizer = Tokenizer.open(directory)
    if tokenizer is None:
        raise InputError(f"{path} holds no tokenizer; give a directory with a tokenizer.json")
    if tokenizer.target_side is not None:
        raise InputError(
            f"{path} holds a Marian tokenizer, with other pieces for each language; fine-tune the "
            "model on your pairs with regard finetune --task translate, or train a new tokenizer"
        )
    if path.is_file() and path.name != "tokenizer.json":
        raise InputError(f"{path} is not a tokenizer.json; give that file or its directory")
    for option, value in (("--vocab-size", plan.vocab_size), ("--lower", plan.lower)):
        if value is not None:
            raise InputError(
                f"{option} is for a new tokenizer, but the tokenizer of {path} is used as it is; "
                f"leave {option} out"
            )
    if (directory / MARKER).is_file():
        return tokenizer, Special(**read_marker(directory)["special"])
    return tokenizer, special_of(tokenizer, str(path))
