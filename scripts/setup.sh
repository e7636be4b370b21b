#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, and checks their versions. It also
# unpacks headers that Debian has not: of XLA's FFI and, where CUDA code can be built, those of
# cudnn-frontend, NCCL and TVM-FFI. Prints nothing when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--build-only]

Checks that the packages longspan needs are installed, and installs those that are missing with
apt-get (through sudo when not root). The versions stated are lower bounds: those of Debian 12.
The headers of XLA's FFI (for longspan.jax) and, where nvcc is found, those of cudnn-frontend (for
the provider cudnn), of NCCL (for the communicator nccl) and of TVM-FFI (for the provider prepared)
are downloaded from PyPI into build/deps.

  --build-only   only what building and running the command line needs, not the tests' packages
TEXT
}

# package, lowest version. Debian 12's versions, without the Debian revision.
build_packages='
g++                     4:12.2
cmake                   3.25.1
ninja-build             1.11.1
ccache                  4.7.5
python3                 3.11
libfmt-dev              9.1.0
nlohmann-json3-dev      3.11.2
libcli11-dev            2.1.2
libhwy-dev              1.0.3
libxsmm-dev             1.17
libopenmpi-dev          4.1.4
openmpi-bin             4.1.4
'
test_packages='
git                     1:2.39
libgtest-dev            1.12.1
libgmock-dev            1.12.1
librapidcheck-dev       0~1033
libbenchmark-dev        1.7.1
libopenblas0-pthread    0.3.21
clang-14                1:14.0.6
clang-format-14         1:14.0.6
clang-tidy-14           1:14.0.6
libclang-rt-14-dev      1:14.0.6
python3-venv            3.11
'

frontend_version=1.23.0
frontend_sha256=7bdae232a3071501012611fab14aae34dd16983205e56d3c1641317910fdd385
frontend_dir=build/deps/cudnn-frontend-$frontend_version
nccl_version=2.28.9
nccl_sha256=e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
nccl_dir=build/deps/nccl-$nccl_version
cuda_tools_version=13.2.51
cuda_tools_dir=build/deps/cuda-tools/bin
cuobjdump_sha256=95c69d3ddf0c2c1f535ec44c3433a66aeee19f588d9d22f73356e20b25f12b50
nvdisasm_sha256=5a7acf77c55d6d2911ed6155d4d5bc156ffadf9df7a68a89b0c1155f4b13688c
jaxlib_version=0.10.2
jaxlib_sha256=1faca3c5d4662cb4a6130a68105d68bb520764817e165d6eebfd6786c0d1f30f
xla_ffi_dir=build/deps/xla-ffi-$jaxlib_version
tvm_ffi_version=$(awk '$2 == "apache-tvm-ffi" {print $3}' \
  bindings/python/longspan/prepare/packages.txt)
tvm_ffi_sha256=8ecebe749834f6ac0f2693d5964acf9ac75d0bc26e6ba64c46eb7ab00ea50fac
tvm_ffi_dir=build/deps/tvm-ffi-$tvm_ffi_version

packages=$build_packages$test_packages
case "${1:-}" in
  "") ;;
  --build-only) packages=$build_packages ;;
  -h | --help) usage; exit 0 ;;
  *) echo "setup.sh: unknown argument '$1'; see scripts/setup.sh --help" >&2; exit 2 ;;
esac

fail() {
  echo "setup.sh: $1" >&2
  exit 1
}

command -v dpkg-query > /dev/null || fail "dpkg is not here, so packages cannot be checked.
Use Debian 12 or newer, or install the equivalents by hand (the lists stand in scripts/setup.sh)
and build with: cmake --preset release && cmake --build --preset release"

installed_version() {  # of package $1; empty when it is not installed
  { dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2> /dev/null || true; } |
    sed -n '/^installed /{s///p;q}'
}

# Lists packages that are missing or older than needed.
unmet() {
  local name lowest version
  while read -r name lowest; do
    [ -n "$name" ] || continue
    version=$(installed_version "$name")
    if [ -z "$version" ] || dpkg --compare-versions "$version" lt "$lowest"; then
      echo "$name"
    fi
  done <<< "$packages"
}

missing_headers() {  # names what fetch_NAME gets
  [ -f "$xla_ffi_dir/include/xla/ffi/api/ffi.h" ] || echo xla_ffi
  command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ] || return 0
  [ -f "$frontend_dir/include/cudnn_frontend.h" ] || echo frontend
  [ -f "$nccl_dir/include/nccl.h" ] || echo nccl
  [ -f "$tvm_ffi_dir/lib/libtvm_ffi.so" ] || echo tvm_ffi
  [ -x /usr/local/cuda/bin/cuobjdump ] || command -v cuobjdump > /dev/null ||
    [ -x "$cuda_tools_dir/nvdisasm" ] || echo cuda_tools
}

# Wheels are taken for their headers alone, so one of any Python does: always the same file.
# $1: package==version, $2: sha256, $3: folder for header folder $4 of the wheel and license $5, $6:
# what is not built without it, then further arguments for pip. $library: a file that tests link.
fetch_headers() {
  local wheel=$1 sha256=$2 folder=$3 headers=$4 license=$5 without=$6 library=${library:-} work
  shift 6
  work=$(mktemp -d)
  echo "setup.sh: downloading the headers of $wheel"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
       "$@" --dest "$work" "$wheel" &&
     echo "$sha256  $(echo "$work"/*.whl)" | sha256sum --check --quiet &&
     python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  then
    mkdir -p "$folder"
    rm -rf "$folder/include"
    mv "$work"/wheel/*.dist-info/licenses/"$license" "$folder/LICENSE.txt"
    mv "$work/wheel/$headers" "$folder/include"
    if [ -n "$library" ]; then install -D -t "$folder/lib" "$work/wheel/$library"; fi
  else
    echo "setup.sh: no headers of $wheel: $without will not be built" >&2
  fi
  rm -rf "$work"
}

fetch_frontend() {
  fetch_headers "nvidia-cudnn-frontend==$frontend_version" "$frontend_sha256" "$frontend_dir" \
    include LICENSE.txt "the provider cudnn" --implementation cp --python-version 3.11 \
    --abi cp311 --platform manylinux_2_28_x86_64
}

fetch_nccl() {
  fetch_headers "nvidia-nccl-cu13==$nccl_version" "$nccl_sha256" "$nccl_dir" \
    nvidia/nccl/include License.txt "the communicator nccl" --platform manylinux_2_18_x86_64
}

fetch_tvm_ffi() {
  library=tvm_ffi/lib/libtvm_ffi.so fetch_headers "apache-tvm-ffi==$tvm_ffi_version" \
    "$tvm_ffi_sha256" "$tvm_ffi_dir" tvm_ffi/include LICENSE "the provider prepared" \
    --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64
}

fetch_xla_ffi() {
  fetch_headers "jaxlib==$jaxlib_version" "$jaxlib_sha256" "$xla_ffi_dir" \
    jaxlib/include LICENSE.txt longspan.jax --implementation cp --python-version 3.11 \
    --abi cp311 --platform manylinux_2_27_x86_64
}

# $1: cuobjdump or nvdisasm, $2: sha256. They read machine code for the test kernel_gates.
fetch_cuda_tool() {
  local wheel=nvidia-cuda-$1==$cuda_tools_version work
  work=$(mktemp -d)
  echo "setup.sh: downloading $wheel"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
       --dest "$work" "$wheel" &&
     echo "$2  $(echo "$work"/*.whl)" | sha256sum --check --quiet &&
     python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  then
    mkdir -p "$cuda_tools_dir"
    install -m 755 "$work/wheel/nvidia/cu13/bin/$1" "$cuda_tools_dir/$1"
  else
    echo "setup.sh: no $wheel: the test kernel_gates will not be run" >&2
  fi
  rm -rf "$work"
}

fetch_cuda_tools() {
  fetch_cuda_tool cuobjdump "$cuobjdump_sha256"
  fetch_cuda_tool nvdisasm "$nvdisasm_sha256"
}

fetch_missing() {
  local name
  for name in $(missing_headers); do "fetch_$name"; done
}

if [ -n "$(missing_headers)" ] && ! python3 -m pip --version > /dev/null 2>&1; then
  packages+='
python3-pip             23.0
'
fi
mapfile -t missing < <(unmet)
if [ ${#missing[@]} -eq 0 ]; then
  fetch_missing
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || fail "not root and no sudo here. As root run:
  apt-get install -y --no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi
command -v apt-get > /dev/null ||
  fail "apt-get is not here. Install by other means: ${missing[*]}"

echo "setup.sh: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" > "$log" 2>&1 < /dev/null
  then
    tail -n 20 "$log" >&2
    fail "apt-get $1 failed (its last lines are above)"
  fi
}
apt update
apt install -y --no-install-recommends "${missing[@]}"

still=$(unmet)
if [ -n "$still" ]; then
  for name in $still; do
    lowest=$(awk -v name="$name" '$1 == name { print $2 }' <<< "$packages")
    echo "setup.sh: $name is '$(installed_version "$name")', needed is at least $lowest" >&2
  done
  fail "this system's packages are too old: use Debian 12 or newer"
fi
fetch_missing
