"""The sides of benchmarks/compress.py: how each one loads the same GPT-2 and continues texts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

Prompts = list[list[int]]
Continue = Callable[[Prompts, int], Prompts]  # (prompts, number of new tokens) -> new tokens

THREADS = 2
OURS = {"ours, fp32": None, "ours, bf16": "bf16", "ours, int8": "weight",
        "ours, int8 dynamic": "dynamic"}  # fmt: skip
NEEDED = {"Hugging Face, fp32": "transformers", "CTranslate2, int8": "ctranslate2",
          "llama.cpp, Q8_0": "llama_cpp"}  # fmt: skip
SIDES = (*OURS, *NEEDED)


def there(side: str) -> bool:
    """Returns whether the library of a side is installed."""
    wanted = [NEEDED[side]] if side in NEEDED else []
    wanted += ["gguf"] if side.startswith("llama") else []
    return all(importlib.util.find_spec(name) is not None for name in wanted)


def made(place: Path, tiny: bool) -> Path:
    """Saves a GPT-2 with random weights, in a directory that transformers opens."""
    from regard.core.seeding import seed_torch
    from regard.formats.directory import save
    from regard.models.gpt import GPT, SIZES

    config = SIZES["gpt2"]
    config = config.replace(layers=2, width=128, heads=2, vocab_size=999) if tiny else config
    seed_torch(0, "weights")
    return save(GPT(config).initialize(), place / "gpt2")


def build(side: str, model: Path) -> tuple[Continue, int]:
    """Returns the function with which a side continues texts, and the bytes of its weights."""
    if side in OURS:
        return ours(model, OURS[side])
    return {
        "Hugging Face, fp32": huggingface,
        "CTranslate2, int8": ctranslate2,
        "llama.cpp, Q8_0": llama,
    }[side](model)


def weight(place: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in place.glob(pattern))


def ours(model: Path, kind: str | None) -> tuple[Continue, int]:
    import torch

    from regard.api import load
    from regard.decoding import generate
    from regard.models.extensions import extend
    from regard.training.hardware import quick_malloc

    quick_malloc()
    torch.set_num_threads(THREADS)
    place = model
    if kind is not None:
        loaded = load(model)
        extend(loaded.model, "int8", {"kind": kind})
        place = loaded.save(model.parent / f"ours-{kind}")
    opened = load(place)

    def write(prompts: Prompts, new: int) -> Prompts:
        answers = generate(opened, prompts, max_new_tokens=new, eos_ids=[], suppress_tokens=[])
        return [best[0].ids for best in answers]

    return write, weight(place, "*.safetensors")


def huggingface(model: Path) -> tuple[Continue, int]:
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(THREADS)
    opened: Any = GPT2LMHeadModel.from_pretrained(model, dtype=torch.float32).eval()

    def write(prompts: Prompts, new: int) -> Prompts:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            tokens = opened.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                do_sample=False, pad_token_id=0,
            )  # fmt: skip
        return [row[ids.size(1) :] for row in tokens.tolist()]

    return write, weight(model, "*.safetensors")


def ctranslate2(model: Path) -> tuple[Continue, int]:
    from ctranslate2 import Generator
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoConfig, PreTrainedTokenizerFast

    words = [f"t{i}" for i in range(AutoConfig.from_pretrained(model).vocab_size)]

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *args: Any, **more: Any) -> Any:
            table = WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0])
            last = words[-1]
            return PreTrainedTokenizerFast(
                tokenizer_object=Tokenizer(table), unk_token=last, bos_token=last, eos_token=last
            )

    place = model.parent / "ctranslate2"
    Converter(str(model)).convert(str(place), quantization="int8", force=True)
    opened = Generator(str(place), device="cpu", compute_type="int8", inter_threads=1,
                       intra_threads=THREADS)  # fmt: skip

    def write(prompts: Prompts, new: int) -> Prompts:
        rows = [[words[i] for i in prompt] for prompt in prompts]
        results = opened.generate_batch(
            rows, max_length=new, min_length=new, sampling_topk=1, beam_size=1,
            include_prompt_in_result=False,
        )  # fmt: skip
        return [result.sequences_ids[0] for result in results]

    return write, weight(place, "model.bin")


def llama(model: Path) -> tuple[Continue, int]:
    """Uses llama.cpp's C functions, because its Python class continues one text at a time."""
    import llama_cpp as cpp
    import numpy as np

    file = model.parent / "gpt2-q8_0.gguf"
    words = written(model, file)
    quiet = cpp.llama_log_callback(lambda level, text, data: None)  # must live as long as the model
    cpp.llama_log_set(quiet, None)
    cpp.llama_backend_init()
    opened = cpp.llama_model_load_from_file(str(file).encode(), cpp.llama_model_default_params())
    how = cpp.llama_context_default_params()
    how.n_ctx, how.n_batch, how.n_seq_max = 4096, 512, 8
    how.n_threads = how.n_threads_batch = THREADS
    context = cpp.llama_init_from_model(opened, how)
    batch = cpp.llama_batch_init(how.n_batch, 0, 1)

    def read(rows: Prompts, start: int) -> list[int]:
        """Returns the likeliest token after each row; rows continue at the position `start`."""
        at, ends = 0, []
        for number, row in enumerate(rows):
            for place, token in enumerate(row):
                batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, start + place, 1
                batch.seq_id[at][0] = number
                batch.logits[at] = place + 1 == len(row)
                at += 1
            ends.append(at - 1)
        batch.n_tokens = at
        if cpp.llama_decode(context, batch):
            raise RuntimeError("llama.cpp cannot read this")
        logits = (cpp.llama_get_logits_ith(context, end) for end in ends)
        return [int(np.ctypeslib.as_array(row, (words,)).argmax()) for row in logits]

    def write(prompts: Prompts, new: int, _callback: Any = quiet) -> Prompts:
        cpp.llama_memory_clear(cpp.llama_get_memory(context), True)
        texts: Prompts = [[] for _ in prompts]
        rows, start = prompts, 0
        for _ in range(new):
            tokens = read(rows, start)
            start += len(rows[0])
            for row, token in zip(texts, tokens, strict=True):
                row.append(token)
            rows = [[token] for token in tokens]
        return texts

    return write, file.stat().st_size


NAMES = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
         "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}  # fmt: skip
AROUND = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}


def written(model: Path, file: Path) -> int:
    """Writes the GGUF file: matrices as Q8_0, the rest in 32 bits. Returns the vocabulary size."""
    import gguf
    from safetensors.numpy import load_file
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = [f"t{i}" for i in range(config.vocab_size)]
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(len(words) - 1)
    writer.add_eos_token_id(len(words) - 1)
    small = gguf.GGMLQuantizationType.Q8_0
    for key, value in load_file(model / "model.safetensors").items():
        parts = key.removeprefix("transformer.").split(".")
        layer = f"blk.{parts[1]}." if parts[0] == "h" else ""
        name, kind = ".".join(parts[2:-1] if layer else parts[:-1]), parts[-1]
        if name not in NAMES and name not in AROUND:
            continue  # masks, and an output that is tied to the embeddings
        turned = value.T.copy() if name.count(".") == 1 and value.ndim == 2 else value
        title = f"{layer}{NAMES.get(name) or AROUND[name]}.{kind}"
        if turned.ndim == 2 and name != "wpe":
            writer.add_tensor(title, gguf.quants.quantize(turned, small), raw_dtype=small)
        else:
            writer.add_tensor(title, turned)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(words)
