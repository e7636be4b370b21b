// Kernels of a stream that begin while the one before them ends.
#pragma once

namespace longspan::hopper {

/// Lets the next kernel's blocks begin where this one's have ended, as far as await_previous().
__device__ __forceinline__ void admit_next() { asm volatile("griddepcontrol.launch_dependents;"); }
/// Until the kernel before this one is complete and its writes are visible. Nothing is waited for
/// where the launch did not ask to begin early.
__device__ __forceinline__ void await_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace longspan::hopper
