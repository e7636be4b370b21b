#!/usr/bin/env bash
# Builds the wheel and an environment in build/python that the Python tests run in. Prints the
# environment's interpreter last.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/build_env.sh
. scripts/build_env.sh

torch_version=2.11.0
home=build/python
pip=("$home/venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
export PYTHONDONTWRITEBYTECODE=

has_library() { ldconfig -p | grep -q "$1"; }

# The wheel of torch asks for wheels of all of CUDA. Where CUDA 13, cuDNN and NCCL are installed,
# only what the toolkit has not is fetched.
install_torch() {
  if [ -e /usr/local/cuda/lib64/libcublas.so.13 ] && has_library libcudnn.so.9 &&
     has_library libnccl.so.2
  then
    "${pip[@]}" --no-deps "torch==$torch_version" nvidia-cufile==1.20.0.107 \
      nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5
    "${pip[@]}" typing-extensions sympy networkx jinja2 fsspec filelock
  else
    "${pip[@]}" "torch==$torch_version"
  fi
}

{
  [ -x "$home/venv/bin/python" ] || python3 -m venv "$home/venv"
  install_torch
  "${pip[@]}" -r tests/python/requirements.txt
  rm -rf "$home/wheel"
  # With the flags of the presets, so that ccache has the kernels that they compiled.
  "$home/venv/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps \
    --config-settings=cmake.define.LONGSPAN_WERROR=ON --wheel-dir "$home/wheel" .
  "${pip[@]}" "$(awk '$2 == "apache-tvm-ffi" {print $2 "==" $3}' \
    bindings/python/longspan/prepare/packages.txt)"
  "${pip[@]}" --force-reinstall --no-deps "$home"/wheel/longspan-*.whl
} >&2
echo "$PWD/$home/venv/bin/python"
