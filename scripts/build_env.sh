# shellcheck shell=bash
# Sourced by the scripts that build. Compiles through ccache where it is installed.
if command -v ccache > /dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
