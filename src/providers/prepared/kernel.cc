#include "providers/prepared/kernel.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "providers/prepared/consistency.h"
#include "providers/prepared/errors.h"
#include "providers/prepared/frame.h"
#include "providers/prepared/sha256.h"

namespace longspan::prepared {
namespace {

/// What is between the backquotes and brackets: "... calling: `func(mQ: Tensor(...), ...)`".
std::string inner_signature(const std::string& message) {
  const size_t begin = message.find('(', message.find('`'));
  const size_t end = message.rfind(")`");
  if (begin == message.npos || end == message.npos || end <= begin) return {};
  return message.substr(begin + 1, end - begin - 1);
}

int called(void* entry, const TVMFFIAny* arguments, int32_t count) {
  TVMFFIAny result{};
  return reinterpret_cast<TVMFFISafeCallType>(entry)(nullptr, arguments, count, &result);
}

Status same_checksum(const Manifest& m) {
  LONGSPAN_TRY(const std::string sum, sha256_of_file(m.library));
  if (sum == m.sha256) return {};
  return refused(fmt::format("{} has checksum {}, its manifest says {}: prepare the store anew",
                             m.library, sum, m.sha256));
}

/// An entry describes its parameters when it is called without any.
Status same_signature(const Ffi& ffi, void* entry, const EntrySpec& spec) {
  if (called(entry, nullptr, 0) == 0) {
    return refused(fmt::format("{} accepts a call without arguments", spec.symbol));
  }
  const std::string message = taken_error(ffi);
  const std::string own = inner_signature(message);
  if (own == spec.signature) return {};
  return refused(fmt::format("{} has the signature ({}), its manifest says ({})", spec.symbol,
                             own.empty() ? message : own, spec.signature));
}

}  // namespace

Result<Kernel::Entry> Kernel::open_entry(void* library, const EntrySpec& spec) const {
  const std::string symbol = "__tvm_ffi_" + spec.symbol;
  Entry entry{.call = dlsym(library, symbol.c_str())};
  if (entry.call == nullptr) return refused(fmt::format("there is no {}", symbol));
  LONGSPAN_CHECK_OK(same_signature(ffi_, entry.call, spec));
  const KnownList* const list = known_list(spec.list);
  if (list == nullptr) return refused(fmt::format("list {} is unknown", spec.list));
  LONGSPAN_TRY(const std::vector<Slot> slots, parse_signature(spec.signature));
  LONGSPAN_TRY(entry.slots, match(*list, slots));
  LONGSPAN_CHECK_OK(fits_frame(entry.slots));
  return entry;
}

Result<Kernel::Step> Kernel::bind_step(const StepSpec& spec) const {
  const auto found = std::ranges::find(manifest_.entries, spec.role, &EntrySpec::role);
  if (found == manifest_.entries.end()) {
    return refused(fmt::format("a step runs {}, which is no entry", spec.role));
  }
  Step step{.entry = static_cast<size_t>(found - manifest_.entries.begin())};
  size_t used = 0;
  for (const BoundSlot& bound : entries_[step.entry].slots) {
    Given given = bound.given;
    if (given.what == Given::What::kStep) {
      const auto wanted = spec.given.find(bound.slot.name);
      if (wanted == spec.given.end()) {
        return refused(fmt::format("a step of {} gives {} nothing", spec.role, bound.slot.name));
      }
      given = wanted->second;
      ++used;
    }
    step.given.push_back(given);
  }
  if (used == spec.given.size()) return step;
  return refused(fmt::format("a step of {} gives {} slots something, {} wait for it", spec.role,
                             spec.given.size(), used));
}

std::vector<BoundSlot> Kernel::step_slots() const {
  std::vector<BoundSlot> all;
  for (const Step& step : steps_) {
    const std::vector<BoundSlot>& slots = entries_[step.entry].slots;
    for (size_t i = 0; i < slots.size(); ++i) all.push_back({slots[i].slot, step.given[i]});
  }
  return all;
}

Result<std::shared_ptr<const Kernel>> Kernel::open(const Manifest& manifest, const Ffi& ffi) {
  LONGSPAN_CHECK_OK(same_checksum(manifest));
  void* const library = dlopen(manifest.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return refused(fmt::format("{} could not be opened: {}", manifest.library, dlerror()));
  }
  const auto named = [&](const Error& error) {
    return refused(fmt::format("{}: {}", manifest.path, error.message));
  };
  const std::shared_ptr<Kernel> kernel(new Kernel(manifest, ffi));
  for (const EntrySpec& spec : manifest.entries) {
    Result<Entry> entry = kernel->open_entry(library, spec);
    if (!entry.ok()) return named(entry.error());
    kernel->entries_.push_back(std::move(*entry));
  }
  for (const StepSpec& spec : manifest.steps) {
    Result<Step> step = kernel->bind_step(spec);
    if (!step.ok()) return named(step.error());
    kernel->steps_.push_back(std::move(*step));
  }
  if (kernel->steps_.empty()) return named(refused("there are no steps"));
  if (const Status same = consistent(manifest, kernel->step_slots()); !same.ok()) {
    return named(same.error());
  }
  return std::shared_ptr<const Kernel>(kernel);
}

Status Kernel::run_step(const Step& step, const Values& values) const {
  const Entry& entry = entries_[step.entry];
  Frame frame;
  LONGSPAN_CHECK_OK(frame.fill(entry.slots, step.given, values));
  if (called(entry.call, frame.arguments(), frame.count()) == 0) return {};
  return Error{ErrorCode::kDriver,
               fmt::format("{} of {}: {}", manifest_.entries[step.entry].role, manifest_.name,
                           taken_error(ffi_)),
               "prepared"};
}

Status Kernel::run(const Values& values) const {
  const StreamScope stream(ffi_, values.ordinal, values.stream.handle);
  if (!stream.ok()) return refused(fmt::format("no stream could be set: {}", taken_error(ffi_)));
  for (const Step& step : steps_) LONGSPAN_CHECK_OK(run_step(step, values));
  return {};
}

}  // namespace longspan::prepared
