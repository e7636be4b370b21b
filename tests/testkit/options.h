// Values of every option of a problem, one by one and in pairs.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "testkit/conformance.h"

namespace longspan::testkit {

/// A key of the problem text and a value that is not its default; "modification" stands for
/// callbacks (see modifications.h).
struct Option {
  std::string key;
  std::string value;

  std::string text() const { return key + "=" + value; }
  bool operator==(const Option&) const = default;
};

inline void PrintTo(const Option& option, std::ostream* out) { *out << option.text(); }

/// What may be asked of any problem: visibility, scores, probabilities, results, guarantees.
const std::vector<Option>& options();
/// Those that a provider or strategy refuses, in whole or in part.
const std::vector<Option>& refused_options();

/// The case with the option on top; its problem must not have the key. One entry of a list goes to
/// each sequence in turn.
Case with_option(Case c, const Option& option);

}  // namespace longspan::testkit
