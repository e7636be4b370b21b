"""schedule and simulate as on GPUs, where there need not be one."""

LONG = "dtype=bf16 heads=8/2 dim=64 lengths=1024 mask=causal"
# Queries see fewer than 64 keys on average: O stays in FP32 for backward.
SHORT = "dtype=bf16 heads=8/2 dim=64 lengths=96 mask=causal"


def of_rank_0(tool, *arguments):
    return tool.expect_pass(["schedule", *arguments])["schedules"][0]


def whole_results(tool):
    for direction in ("forward", "backward"):
        common = ("--problem", LONG, "--direction", direction)
        host = of_rank_0(tool, *common, "--device", "cpu")
        gpu = of_rank_0(tool, *common, "--device", "cuda")
        tool.expect(host == of_rank_0(tool, *common), "cpu is the default")
        tool.expect(gpu["steps"] < host["steps"], f"{direction}: {gpu} / {host}")
        tool.expect(gpu["seconds"] < host["seconds"], f"{direction}: {gpu} / {host}")
        tool.expect(gpu["workspace_bytes"] < host["workspace_bytes"], f"{gpu} / {host}")
        tool.expect(gpu["flops"] == host["flops"], f"{gpu} / {host}")
    alone = of_rank_0(tool, "--problem", LONG, "--device", "cuda")
    tool.expect(alone["steps"] == 1 and alone["workspace_bytes"] == 0, str(alone))
    short = ("--problem", SHORT)
    tool.expect(
        of_rank_0(tool, *short, "--device", "cuda") == of_rank_0(tool, *short), "carried on both"
    )


def printed_and_drawn(tool):
    arguments = ("schedule", "--problem", LONG, "--device", "cuda")
    plain = tool(*arguments, "--plot", "gpu.svg")
    tool.expect("1 steps" in plain.out and "PASS 1 checks" in plain.out, plain.out)
    tool.expect("fill" not in plain.out and "unpack" not in plain.out, plain.out)
    with open(tool.path("gpu.svg")) as file:
        drawn = file.read()
    tool.expect("attend" in drawn and "unpack" not in drawn, "the drawing is of other steps")


def slices_of_heads(tool):
    problem = LONG.replace("8/2", "8/4")
    arguments = ("schedule", "--problem", problem, "--device", "cuda", "--ranks", 2)
    sliced = tool(*arguments, "--forward", "all_to_all", "--head-slices", 2)
    tool.expect("compute/1" in sliced.out and "PASS 1 checks" in sliced.out, sliced.out)


def simulated(tool):
    common = ["simulate", "--problem", LONG, "--ranks", 4]
    rows = {}
    for device in ("cpu", "cuda"):
        for row in tool.expect_pass([*common, "--device", device])["rows"]:
            rows[device, row["direction"], row["strategy"]] = row
    for direction in ("forward", "backward"):
        host, gpu = (rows[device, direction, "all_to_all"] for device in ("cpu", "cuda"))
        tool.expect(gpu["seconds"] < host["seconds"], f"{direction}: {gpu} / {host}")
        tool.expect(gpu["bytes_sent"] == host["bytes_sent"], f"{direction}: {gpu} / {host}")


def other_devices(tool):
    for command in ("schedule", "simulate"):
        for device in ("cuda:0", "gpu", ""):
            tool.expect_refused(
                [command, "--problem", LONG, "--device", device],
                f"--device {device}: cpu or cuda is needed",
            )


def cases():
    return [whole_results, printed_and_drawn, slices_of_heads, simulated, other_devices]
