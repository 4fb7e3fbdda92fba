"""The module itself: a worked example, PyTorch's own attention, and the compiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from regard.attention.attention import Attention
from regard.attention.block import (
    ACTIVATIONS,
    Block,
    CrossBlock,
    FeedForward,
    Gated,
    PostNorm,
    PreNorm,
)
from regard.attention.kernels import AttentionArgs, working_dtype
from regard.attention.memory import CrossKV
from regard.attention.pattern import Causal, Full, Ordered
from regard.attention.position import Distances, Relative, View, sinusoids
from regard.attention.window import Window
from regard.models.longformer_characters import Dilated
from regard.models.state import causal, everything
from tests.attention.naive import close, coins, numbers

CPU = torch.device("cpu")
WIDTH, HEADS = 8, 2


def layer(**choices: object) -> Attention:
    attention = Attention(WIDTH, HEADS, **choices)  # type: ignore[arg-type]
    for i, weight in enumerate(attention.parameters()):
        weight.data = numbers(*weight.shape, seed=i)
    return attention


def test_worked_example() -> None:
    """Two words of two numbers, one head, by hand: X W_q, X W_k, X W_v, softmax(Q Kᵀ / √2) V."""
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    matrices = [[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]], [[0.9, 1.0], [1.1, 1.2]]]
    attention = Attention(2, 1, bias=False)
    attention.project.weight.data = torch.cat([torch.tensor(m).T for m in matrices])
    attention.out.weight.data = torch.eye(2)
    q, k, v = (part[0, 0] for part in attention.project(x))
    assert torch.allclose(q, torch.tensor([[0.7, 1.0], [1.5, 2.2]]))
    assert torch.allclose(k, torch.tensor([[1.9, 2.2], [4.3, 5.0]]))
    assert torch.allclose(v, torch.tensor([[3.1, 3.4], [7.1, 7.8]]))
    scores = torch.tensor([[2.4961, 5.6639], [5.4377, 12.3390]])
    assert torch.allclose(q @ k.T * attention.scale, scores, atol=5e-5)
    weights = Full().weights(q[None, None], k[None, None], AttentionArgs(None, attention.scale))[
        0, 0
    ]
    assert torch.allclose(weights, torch.tensor([[0.0404, 0.9596], [0.0010, 0.9990]]), atol=5e-5)
    expected = torch.tensor([[6.9384, 7.6223], [7.0960, 7.7956]])
    assert torch.allclose(attention(x, View(Full()))[0], expected, atol=5e-5)


# ----------------------------------------------------- PyTorch's own attention


def twins(bias: bool = True) -> tuple[Attention, nn.MultiheadAttention]:
    """The same weights in both: query, key and value stand in the same order."""
    ours = layer(bias=bias)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True)
    theirs.in_proj_weight.data.copy_(ours.project.weight)
    theirs.out_proj.weight.data.copy_(ours.out.weight)
    if bias:
        theirs.in_proj_bias.data.copy_(ours.project.bias)
        theirs.out_proj.bias.data.copy_(ours.out.bias)
    return ours, theirs


def equal(ours: Attention, theirs: nn.MultiheadAttention, y: Tensor, z: Tensor) -> None:
    """Outputs, and the gradients of the two big matrices."""
    close(y, z.double(), 1e-5)
    direction = numbers(*y.shape, seed=3)
    a = torch.autograd.grad(y, [ours.project.weight, ours.out.weight], direction)
    b = torch.autograd.grad(z, [theirs.in_proj_weight, theirs.out_proj.weight], direction)
    for mine, other in zip(a, b, strict=True):
        close(mine, other.double(), 1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_like_multihead_attention(bias: bool) -> None:
    ours, theirs = twins(bias)
    x = numbers(3, 5, WIDTH)
    equal(ours, theirs, ours(x, View(Full())), theirs(x, x, x, need_weights=False)[0])


def test_like_multihead_attention_with_padding() -> None:
    ours, theirs = twins()
    x = numbers(3, 5, WIDTH)
    attention_mask = torch.tensor(
        [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 1, 1]], dtype=torch.bool
    )
    y = ours(x, View(everything(attention_mask, 5, torch.float32)))
    equal(ours, theirs, y, theirs(x, x, x, key_padding_mask=~attention_mask, need_weights=False)[0])


def test_like_multihead_attention_causal() -> None:
    ours, theirs = twins()
    x = numbers(3, 5, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    z = theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    equal(ours, theirs, ours(x, View(Causal())), z)


def test_like_multihead_attention_across() -> None:
    ours, theirs = twins()
    x, source = numbers(2, 3, WIDTH), numbers(2, 6, WIDTH, seed=2)
    y = ours(x, View(Full()), CrossKV(ours.project.pairs(source)))
    equal(ours, theirs, y, theirs(x, source, source, need_weights=False)[0])


# --------------------------------------------------------------- small choices


def test_head_size_and_scale_are_free() -> None:
    attention = Attention(6, 2, size=5, scale=1.0, bias=False)
    assert attention.project.weight.shape == (30, 6) and attention.out.weight.shape == (6, 10)
    assert attention.scale == 1.0 and Attention(6, 2).scale == 3**-0.5
    assert attention(numbers(1, 4, 6), View(Full())).shape == (1, 4, 6)


def test_dropout_only_while_training() -> None:
    attention, x = layer(dropout=0.5), numbers(2, 6, WIDTH)
    assert not torch.equal(*(attention(x, View(Full())) for _ in "ab"))
    attention.eval()
    assert torch.equal(*(attention(x, View(Full())) for _ in "ab"))


def test_autocast_projects_in_bf16() -> None:
    attention, x = layer(dropout=0.1), numbers(2, 6, WIDTH)
    attention_mask = coins(2, 6, seed=1)
    assert working_dtype(x) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert working_dtype(x) == torch.bfloat16
        y = attention(x, View(causal(attention_mask, 0, working_dtype(x))))
        assert y.dtype == torch.bfloat16
        window = Window(2, 2, 6, working_dtype(x), CPU, attention_mask)
        z = attention(x, View(window))
    (y.float().sum() + z.float().sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())


def test_the_kernel_can_be_replaced() -> None:
    """How a recorder looks: it gets everything, and what it makes of the weights is the output."""
    attention, x = layer().eval(), numbers(2, 6, WIDTH)
    seen = []

    def look(pattern, q, k, v, how):  # type: ignore[no-untyped-def]
        seen.append(pattern.weights(q, k, how))
        return seen[-1] @ v

    expected = attention(x, View(Causal()))
    attention.kernel = look
    assert torch.allclose(attention(x, View(Causal())), expected, atol=1e-6)
    assert seen[0].shape == (2, HEADS, 6, 6) and torch.allclose(seen[0].sum(-1), torch.ones(()))


# ---------------------------------------------------------------- the compiler


def relative() -> Attention:
    u, v = (nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS)) for _ in range(2))
    return layer(score=Relative(WIDTH, u, v))


def ordered(x: Tensor, marks: Tensor) -> View:
    order = torch.arange(x.size(1))[None]
    keys = torch.where(marks, order, Ordered.HIDDEN)
    return View(Ordered(order, keys, x.dtype, documents=(marks.long(), marks.long())))


def windowed(x: Tensor, marks: Tensor) -> View:
    far = torch.where(marks[:, :2], torch.tensor([[0, 3]]), -1)
    return View(Window(3, 3, x.size(1), x.dtype, x.device, marks, far))


def distant(x: Tensor, marks: Tensor) -> View:
    length = x.size(1)
    table = sinusoids(torch.arange(length - 1, -2, -1), WIDTH)[None]
    return View(Causal(), distances=Distances(table, length, length))


def distant_window(x: Tensor, marks: Tensor) -> View:
    pattern = Window(3, 0, x.size(1), x.dtype, x.device, marks)
    first, keys = pattern.before + pattern.block - 1, pattern.before + pattern.block
    table = sinusoids(torch.arange(first, first - keys - 1, -1), WIDTH)[None]
    return View(pattern, distances=Distances(table, pattern.block, keys))


VIEWS: dict[str, tuple[Callable[..., Attention], Callable[[Tensor, Tensor], View]]] = {
    "full": (layer, lambda x, marks: View(Full())),
    "full, padded": (layer, lambda x, marks: View(everything(marks, x.size(1), x.dtype))),
    "causal": (layer, lambda x, marks: View(Causal())),
    "causal, padded": (layer, lambda x, marks: View(causal(marks, 0, x.dtype))),
    "ordered": (layer, ordered),
    "window": (layer, windowed),
    "dilated": (layer, lambda x, marks: View(Dilated(2, 3, 3, marks, x.dtype))),
    "relative": (relative, distant),
    "relative window": (relative, distant_window),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_compiles_once(name: str) -> None:
    """Built inside the compiled function, with other marks every step: one graph, no break."""
    make, look = VIEWS[name]
    attention = make()

    def step(x: Tensor, marks: Tensor) -> Tensor:
        return attention(x, look(x, marks))

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(step, backend=counter, fullgraph=True)
    for seed in range(3):
        x, marks = numbers(2, 9, WIDTH, seed=seed), coins(2, 9, seed=seed)
        y = compiled(x, marks)
        close(y, step(x, marks).double(), 1e-5)
        y.sum().backward()
    assert counter.frame_count == 1


def test_dropout_compiles() -> None:
    attention = layer(dropout=0.5)
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(
        lambda x: attention(x, View(Causal())), backend=counter, fullgraph=True
    )
    x = numbers(2, 9, WIDTH)
    assert not torch.equal(compiled(x), compiled(x))
    assert counter.frame_count == 1


# ------------------------------------------------------------------ the blocks


def test_norm_places() -> None:
    x, norm, network = numbers(2, 3, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
    assert torch.equal(PostNorm(network, norm, 0.0)(x), norm(x + network(x)))
    assert torch.equal(PreNorm(network, norm, 0.0)(x), x + network(norm(x)))
    torch.manual_seed(0)
    post = PostNorm(network, nn.Identity(), 0.5)
    dropped = post(x) - x
    assert (dropped == 0).any() and not torch.equal(dropped, network(x))
    assert torch.allclose(post.eval()(x) - x, network(x), atol=1e-6)


def test_feed_forward() -> None:
    x, plain = numbers(2, 3, WIDTH), FeedForward(WIDTH, 12, "relu")
    assert torch.equal(plain(x), plain.narrow(plain.wide(x).clamp_min(0)))
    gated, x = Gated(WIDTH, 12, "gelu_tanh", bias=False).double(), x.double()
    assert gated.gate.bias is None
    gate = nn.functional.gelu(gated.gate(x), approximate="tanh")
    assert torch.equal(gated(x), gated.narrow(gate * gated.wide(x)))


@pytest.mark.parametrize(
    ("name", "at_one"),
    [
        ("relu", 1.0),
        ("gelu", 0.841345),
        ("gelu_tanh", 0.841192),
        ("silu", 0.731059),
        ("tanh", 0.761594),
    ],
)
def test_activations(name: str, at_one: float) -> None:
    assert ACTIVATIONS[name](torch.ones(())).item() == pytest.approx(at_one, abs=1e-6)


def test_blocks_pass_their_context_on() -> None:
    attention, cross, network = layer(), layer(), FeedForward(WIDTH, 12, "relu")

    def residual(module: nn.Module) -> PostNorm:
        return PostNorm(module, nn.LayerNorm(WIDTH), 0.0)

    x, source = numbers(2, 4, WIDTH), numbers(2, 6, WIDTH, seed=1)
    own = View(Causal())
    first, last = residual(attention), residual(network)
    assert torch.equal(Block(first, last)(x, own), last(first(x, own)))
    middle = residual(cross)
    across = (View(Full()), CrossKV(cross.project.pairs(source)))
    y = CrossBlock(first, middle, last)(x, (own,), across)
    assert torch.equal(y, last(middle(first(x, own), *across)))


@pytest.mark.parametrize("head", range(HEADS))
@pytest.mark.parametrize("part", range(3), ids=["query", "key", "value"])
def test_a_head_has_three_matrices_of_its_own(head: int, part: int) -> None:
    """The matrix that makes the queries of a head makes nothing else, and so on."""
    attention, x = layer(), numbers(1, 5, WIDTH)
    before = torch.stack(attention.project(x))  # [3, B, H, T, D]
    size = WIDTH // HEADS
    attention.project.weight.data.view(3, HEADS, size, WIDTH)[part, head] += 1.0
    changed = (torch.stack(attention.project(x)) != before).any(-1).any(-1).any(1)
    expected = torch.zeros(3, HEADS, dtype=torch.bool)
    expected[part, head] = True
    assert torch.equal(changed, expected)
