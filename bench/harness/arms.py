"""Names of arms and the commands that serve them."""

import dataclasses
import pathlib
import sys

PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
PEER_ARMS = (
    "torch_sdpa_cudnn",
    "torch_sdpa_flash",
    "torch_cp",
    "fa4",
    "ffpa",
    "frost",
    "te:p2p",
    "te:all_gather",
    "te:a2a",
)
FORWARD_ONLY_ARMS = ("frost",)
YARDSTICK = "cublas"  # a bf16 product of 8192 x 8192 matrices
STRATEGIES = ("ring", "all_gather", "all_to_all", "hybrid")


class UnknownArm(ValueError):
    pass


@dataclasses.dataclass(frozen=True)
class Arm:
    """`name` as it stands in rows. "NAME@1": NAME on one rank beside arms on several."""

    name: str
    command: tuple
    ranks: int
    processes: int


def is_provider(name):
    return name in ("hopper", "cudnn", "prepared") or name.startswith(("cpu/", "cuda/"))


def longspan_flags(name):
    """Flags of `longspan bench` for an arm of longspan itself; None for other names."""
    if name == "longspan":
        return []
    if name.startswith("longspan:"):
        strategy, *rest = name.removeprefix("longspan:").split(":")
        if strategy not in STRATEGIES:
            raise UnknownArm(f"{name}: '{strategy}' is none of {', '.join(STRATEGIES)}")
        communicator, slices, provider, *more = [*rest, "", "", ""]
        if slices and not slices.isdigit():
            slices, provider, *more = "", slices, provider, *more
        if any(more):
            raise UnknownArm(f"{name}: nothing may follow the head slices and the provider")
        if provider and not is_provider(provider):
            raise UnknownArm(f"{name}: '{provider}' is no provider")
        flags = ["--forward", strategy, "--backward", strategy]
        flags += ["--communicator", communicator] if communicator else []
        flags += ["--head-slices", slices] if slices else []
        return flags + (["--provider", f"require:{provider}"] if provider else [])
    provider = name.split(":")[0]
    if provider == "prepared":  # ENGINE is what the problem's dims choose
        return ["--provider", "require:prepared"]
    if is_provider(provider):
        return ["--provider", f"require:{name}"]
    return None


def make_arm(name, problem, ranks, device, direction, longspan, graph, prepared=""):
    """`direction` forward: no backward is run. `prepared`: a store for longspan's arms. UnknownArm
    where the name has no meaning."""
    base, _, own_ranks = name.partition("@")
    if "@" in name:
        if not own_ranks.isdecimal() or int(own_ranks) == 0:
            raise UnknownArm(f"{name}: a number of ranks is needed behind the @")
        ranks = int(own_ranks)
    common = ["--problem", problem, "--ranks", str(ranks)]
    if graph:
        common.append("--graph")
    if base in PEER_ARMS or base == YARDSTICK:
        forward_only = direction == "forward" or base in FORWARD_ONLY_ARMS
        flags = ["--forward-only"] if forward_only else []
        program = [sys.executable, str(PEERS / "serve.py"), "--arm", base]
        return Arm(name, (*program, *common, *flags), ranks, ranks)
    flags = longspan_flags(base)
    if flags is None:
        raise UnknownArm(f"{name}: no arm has this name; peers are {', '.join(PEER_ARMS)}")
    if direction == "forward":
        flags = [*flags, "--backward", "none"]
        flags = drop_repeated(flags, "--backward")
    program = [str(longspan), "bench", "--serve", "--device", device]
    if prepared:
        program += ["--prepared", str(prepared)]
    return Arm(name, (*program, *common, *flags), ranks, 1)


def drop_repeated(flags, flag):
    """Keeps the last value of a flag."""
    while flags.count(flag) > 1:
        at = flags.index(flag)
        flags = flags[:at] + flags[at + 2:]
    return flags
