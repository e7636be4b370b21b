"""longspan.jax over a mesh axis of all GPUs there are, one device each, against float64."""

import jax
import numpy as np
import pytest
from jax_oracle import GPU_BARS, Terms
from jax_scene import Scene, over_mesh

MESH = jax.make_mesh((jax.device_count(),), ("cp",), axis_types=(jax.sharding.AxisType.Auto,))
SINKS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
CAUSAL = Terms(causal=True)
WIDE = {"dims": (64, 64), "lengths": (260, 260), "dtype": "bfloat16"}

SCENES = {
    "f32": Scene(lengths=(40, 40), terms=CAUSAL),
    "bf16": Scene(**WIDE, terms=CAUSAL),
    "bf16 window": Scene(**WIDE, terms=Terms(causal=True, window=(100, 0))),
    "bf16 packed": Scene(dims=(64, 64), lengths=(130, 0, 209, 1), layout="thd", dtype="bfloat16",
                         terms=CAUSAL),
    "sinks": Scene(sinks=SINKS, terms=CAUSAL),
    "dropout": Scene(key=jax.random.key(3), terms=Terms(causal=True, dropout=0.3)),
}


@pytest.mark.parametrize("strategy", ["ring", "all_gather"])
@pytest.mark.parametrize("name", SCENES)
def test_results(name, strategy):
    call = over_mesh(SCENES[name], "zigzag", mesh=MESH, strategy=strategy)
    SCENES[name].check(call, bars=GPU_BARS)
