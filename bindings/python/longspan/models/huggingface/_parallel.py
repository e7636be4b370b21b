"""A model over the ranks of a group: inputs by rows, loss over all of them."""

import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F

from longspan._errors import InvalidArgument, Unsupported
from longspan._options import Options
from longspan._problem import integers
from longspan.models.huggingface._attention import ATTRIBUTE, NAME
from longspan.torch import Plan, engine_of
from longspan.torch._group import process_group

_IGNORED = -100  # transformers' label of tokens without loss


@dataclasses.dataclass(frozen=True)
class Batch:
    """This rank's rows of a batch.

    Attributes:
        inputs: keyword arguments of the model: input_ids and position_ids [1, rows] and the lengths
            of all sequences.
        targets: [1, rows] the label of the token after each row's, -100 where it has no loss; None
            without labels.
        plan: which rows these are.
    """

    inputs: dict
    targets: torch.Tensor | None
    plan: Plan

    def whole(self, rows: torch.Tensor) -> torch.Tensor:
        """[1, tokens, ...] from all ranks' [1, rows, ...], for instance logits. Collective."""
        return self.plan.unshard(rows[0])[None]


def _targets(labels: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The label of the next token of the same sequence."""
    targets = labels.roll(-1)
    ends = torch.tensor(lengths).cumsum(0) - 1
    targets[ends[ends >= 0].to(labels.device)] = _IGNORED
    return targets


def _heads_of(config) -> dict:
    """The keys heads, dim and dtype of a problem whose rows are those of the model's layers."""
    config = config.get_text_config()
    heads = config.num_attention_heads
    return {
        "heads": (heads, getattr(config, "num_key_value_heads", None) or heads),
        "dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "dtype": "bf16",  # rows do not depend on it
    }


class Parallel:
    """What `use` returns. Its methods are collective over the group.

    Attributes:
        dropout_seed: with the layer's number it gives the dropout mask. Needed when the model has
            attention dropout and a group: set it every step to another number, the same on all
            ranks.
    """

    def __init__(self, model, group, options: Options):
        self.group = process_group(group)
        self.options = options
        self.dropout_seed: int | None = None
        self._config = model.config

    def __deepcopy__(self, _memo):
        return self  # groups cannot be copied; copies of a model share theirs

    def dropout_rng(self, module) -> tuple[int, int]:
        if self.dropout_seed is None:
            raise InvalidArgument(
                "the model has attention dropout and runs over a group: set dropout_seed of what "
                "`use` returned to the same number on all ranks, another one every step"
            )
        return self.dropout_seed, module.layer_idx

    def shard(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor | None = None,
        lengths: list[int] | None = None,
    ) -> Batch:
        """This rank's rows of a batch that every rank has whole.

        Args:
            input_ids: [batch, seq], or [1, tokens] of packed sequences with their lengths.
            labels: like input_ids, unshifted, -100 where a token has no loss.
            lengths: of the packed sequences; their sum is all tokens.
        """
        if input_ids.dim() != 2:
            raise InvalidArgument(
                f"input_ids is {list(input_ids.shape)}; it takes [batch, seq], or [1, tokens] with "
                "lengths"
            )
        if labels is not None and labels.shape != input_ids.shape:
            raise InvalidArgument(
                f"labels is {list(labels.shape)} and input_ids {list(input_ids.shape)}; give a "
                "label for each token, -100 where there is none"
            )
        batch, seq = input_ids.shape
        lengths = [seq] * batch if lengths is None else integers(lengths, "lengths")
        if sum(lengths) != batch * seq:
            raise InvalidArgument(
                f"lengths sum to {sum(lengths)}, but input_ids has {batch} x {seq} tokens; pack "
                "sequences without padding"
            )
        engine = engine_of(self.group, input_ids.device, self.options)
        plan = engine.plan(lengths=lengths, causal=True, layout="thd", **_heads_of(self._config))
        ends = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
        inputs = {
            "input_ids": plan.shard(input_ids.flatten())[None],
            "position_ids": plan.positions().to(input_ids.device)[None],
            "cu_seq_lens_q": ends,
            "cu_seq_lens_k": ends,
            "use_cache": False,
        }
        targets = None
        if labels is not None:
            targets = plan.shard(_targets(labels.flatten(), lengths))[None]
        return Batch(inputs, targets, plan)

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy over the targets of all ranks, the same value on all of them.

        Its gradient is this rank's share: sum gradients of parameters over ranks (all_reduce with
        SUM; a data parallel wrapper that takes the mean needs the loss times the number of ranks).
        """
        summed = F.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=_IGNORED, reduction="sum"
        )
        count = (targets != _IGNORED).sum()
        if self.group is None:
            return summed / count
        dist.all_reduce(count, group=self.group)
        share = summed / count
        total = share.detach().clone()
        dist.all_reduce(total, group=self.group)
        return share + (total - share.detach())


def _same_rows_in_all_layers(options: Options) -> Options:
    """Layers with different masks must cut sequences alike, and auto would look at the mask."""
    if options.partition == "balanced":
        raise Unsupported(
            "partition 'balanced' cuts by what a layer's mask shows, so layers with windows would "
            "own other rows; take zigzag, striped or contiguous"
        )
    if options.partition == "auto":
        return dataclasses.replace(options, partition="zigzag")
    return options


def use(model, *, group=None, options: Options | None = None) -> Parallel:
    """Makes longspan the attention of one model, in place.

    Args:
        model: a transformers.PreTrainedModel that takes attention implementations by name.
        group: ProcessGroup or one-dimensional DeviceMesh that sequences are split over; inputs then
            come from `Parallel.shard`. None computes alone.
        options: strategies, providers and partition.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise InvalidArgument(
            f"model is a {type(model).__name__}; it must be a transformers.PreTrainedModel"
        )
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise Unsupported(
            f"{type(model).__name__} does not take attention implementations by name"
        )
    parallel = Parallel(model, group, _same_rows_in_all_layers(options or Options()))
    for module in model.modules():
        setattr(module, ATTRIBUTE, parallel)
    return parallel
