"""What a process under torchrun does in the tests: trains by recipes, or takes one step and keeps
its gradients.

    torchrun --nproc-per-node 2 tests/training/worker.py gradients|train OUT RECIPE.toml…
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from regard.methods.runs import data_for, run
from regard.training import recipe as recipes
from regard.training.parallel import join
from regard.training.plan import prepare
from regard.training.tensor_parallel import in_order, orders_of


def whole(value: Any) -> torch.Tensor:
    full = value.full_tensor() if hasattr(value, "full_tensor") else value
    return full.detach().clone().contiguous()


def gradients(recipe: Path, out: Path) -> None:
    """Those of the first step, after they have been added over all processes."""
    device = torch.device("cpu")
    group = join(device)
    run_recipe = recipes.make(recipes.read(recipe))
    plan = prepare(run_recipe, group, device, print, data=data_for(run_recipe))
    plan.loop.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    step = plan.loop.step(1)
    plan.batches.close()
    model = plan.loop.model
    parts = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    slopes = {name: whole(part) for name, part in in_order(parts, orders_of(model)).items()}
    if group.first:
        save_file(slopes | {"loss": torch.tensor(step.loss, dtype=torch.float64)}, out)


def main() -> None:
    what, out, *files = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    join(torch.device("cpu"))
    for file in map(Path, files):
        place = Path(out, file.stem)
        if what == "gradients":
            gradients(file, place.with_suffix(".safetensors"))
        else:
            resume = (place / "recipe.toml").is_file()
            run(recipes.make(recipes.read(file)), place, resume=resume, display="silent")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
