# shellcheck shell=bash
# Sourced by the scripts that build, in the root of the tree. Compiles through ccache where it is
# installed; clones in different folders share what is cached.
if command -v ccache > /dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR=$PWD
  export CCACHE_NOHASHDIR=1
fi
