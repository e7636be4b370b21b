// A prepared object, opened and checked: entries with bound slots, run in the manifest's order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longspan/status.h"
#include "providers/prepared/ffi.h"
#include "providers/prepared/lists.h"
#include "providers/prepared/manifest.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

/// Immutable; run from several threads at once. Its library stays open to the end of the process.
class Kernel {
 public:
  /// Checks the library's checksum, every entry's symbol and its own signature against the manifest
  /// and the known list, that the steps give every slot something, and that they do what the
  /// manifest says is served (consistency.h). unsupported names what differs.
  static Result<std::shared_ptr<const Kernel>> open(const Manifest& manifest, const Ffi& ffi);

  const Manifest& manifest() const { return manifest_; }
  /// All steps, in order, on the stream of `values` and the current device. Allocates nothing.
  /// driver names the entry and what it said.
  Status run(const Values& values) const;

 private:
  struct Entry {
    void* call = nullptr;
    std::vector<BoundSlot> slots;
  };
  struct Step {
    size_t entry = 0;
    std::vector<Given> given;  // of each slot
  };

  Kernel(const Manifest& manifest, const Ffi& ffi) : manifest_(manifest), ffi_(ffi) {}
  Result<Entry> open_entry(void* library, const EntrySpec& spec) const;
  Result<Step> bind_step(const StepSpec& spec) const;
  /// Of all steps, with what each gives them.
  std::vector<BoundSlot> step_slots() const;
  Status run_step(const Step& step, const Values& values) const;

  Manifest manifest_;
  const Ffi& ffi_;
  std::vector<Entry> entries_;  // in the manifest's order
  std::vector<Step> steps_;
};

}  // namespace longspan::prepared
