"""Trains a small GPT on bytes of text, with sequences split over all ranks of torchrun.

    python examples/train_gpt/train.py                              # one rank
    torchrun --nproc-per-node 4 examples/train_gpt/train.py         # the same losses on four
"""

import argparse
import contextlib
import json
import os
import pathlib
import pydoc_data.topics

import torch
import torch.distributed as dist
import torch.nn.functional as F
import tqdm

from model import GPT, Shape, make_plans


def arguments(words=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=200, help="optimizer steps (default 200)")
    add("--sequence", type=int, default=1024, help="tokens of a sequence, over all ranks (1024)")
    add("--batch", type=int, default=2, help="sequences of a step (2)")
    add("--learning-rate", type=float, default=1e-3, help="of AdamW (1e-3)")
    add("--seed", type=int, default=0, help="of weights and batches (0)")
    add("--text", type=pathlib.Path, help="a file to train on instead of Python's own manual")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="auto: a GPU for each rank where there is one, in bfloat16; else the CPU, in float32")
    add("--output", type=pathlib.Path, default=pathlib.Path("build/train_gpt"),
        help="folder for losses.json and losses.png (build/train_gpt)")
    return parser.parse_args(words)


def text_of(path: pathlib.Path | None) -> torch.Tensor:
    """Bytes as int64. Without a path: the pages that Python's help() shows, 0.7 MB of English."""
    if path is not None:
        data = path.read_bytes()
    else:
        data = "\n".join(pydoc_data.topics.topics.values()).encode()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def batch_of(text: torch.Tensor, args, generator: torch.Generator) -> torch.Tensor:
    """[batch, sequence + 1] from random places, the same on all ranks."""
    last = len(text) - args.sequence - 1
    if last < 0:
        raise SystemExit(f"the text has {len(text)} bytes; --sequence {args.sequence} needs more")
    starts = torch.randint(last + 1, (args.batch, 1), generator=generator)
    return text[starts + torch.arange(args.sequence + 1)]


def join_group():
    """(group, rank): None and 0 when torchrun did not start this process."""
    if "RANK" not in os.environ:
        return None, 0
    if not dist.is_initialized():
        dist.init_process_group()
    return dist.group.WORLD, dist.get_rank()


def device_of(choice: str) -> torch.device:
    enough = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if choice == "cpu" or choice == "auto" and not enough:
        return torch.device("cpu")
    return torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")


def sum_over_ranks(tensors, group) -> None:
    """In place, in one message."""
    if group is None:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat, group=group)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view_as(tensor))


def step(model, optimizer, tokens, group) -> float:
    """One step; returns the loss over all ranks."""
    plan = model.blocks[0].plan
    inputs, targets = plan.shard(tokens[:, :-1]), plan.shard(tokens[:, 1:])
    gpu = tokens.is_cuda
    with torch.autocast("cuda", torch.bfloat16) if gpu else contextlib.nullcontext():
        logits = model(inputs)
    # This rank's share of the mean over all tokens: shares and their gradients add up.
    share = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
    share = share / tokens[:, 1:].numel()
    share.backward()
    loss = share.detach().clone()
    sum_over_ranks([loss, *(p.grad for p in model.parameters())], group)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(args) -> list[float]:
    """The loss of every step."""
    group, rank = join_group()
    device = device_of(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    shape = Shape()
    dtype = "bf16" if device.type == "cuda" else "f32"
    plans = make_plans(shape, args.batch, args.sequence, dtype, group, device)
    torch.manual_seed(args.seed)  # the same weights on all ranks
    model = GPT(shape, plans).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate)
    text, generator = text_of(args.text), torch.Generator().manual_seed(args.seed)
    losses = []
    bar = tqdm.trange(args.steps, desc=f"ranks: {plans[0].ranks}", disable=rank != 0)
    for _ in bar:
        losses.append(step(model, optimizer, batch_of(text, args, generator).to(device), group))
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return losses


def write(losses: list[float], folder: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "losses.json").write_text(json.dumps(losses))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(range(1, len(losses) + 1), losses)
    axes.set(xlabel="step", ylabel="loss (nats a byte)", title="A small GPT")
    axes.grid(alpha=0.3)
    figure.savefig(folder / "losses.png", dpi=120, bbox_inches="tight")


def main() -> None:
    args = arguments()
    losses = train(args)
    if int(os.environ.get("RANK", 0)) == 0:
        write(losses, args.output)
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; {args.output}/losses.json, losses.png")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
