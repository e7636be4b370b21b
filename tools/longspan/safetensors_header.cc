#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "safetensors.h"

namespace longspan::tool {
namespace {

constexpr size_t kMaxShape = 8;

Error fault(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "safetensors"};
}

/// Takes the header event by event: nothing is built that the format does not allow, and depth is
/// bounded by the states.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }
  const std::string& problem() const { return problem_; }
  bool done() const { return state_ == State::kDone; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + shown(text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kNumbers) return unexpected(fmt::format("the number {}", value));
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) {
      return fail(fmt::format("tensor {}: {} in '{}' is beyond 2^63", shown(name_), value, field_));
    }
    if (numbers_.size() == kMaxShape) {
      return fail(
          fmt::format("tensor {}: more than {} numbers in '{}'", shown(name_), kMaxShape, field_));
    }
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      header_.metadata.emplace(name_, value);
      state_ = State::kMetadata;
      return true;
    }
    if (state_ != State::kFieldValue || field_ != "dtype") {
      return unexpected("the string " + shown(value));
    }
    const auto known = parse_file_type(value);
    if (!known.ok()) return fail(fmt::format("tensor {}: {}", shown(name_), known.error().message));
    tensor_.type = *known;
    state_ = State::kFields;
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kNames;
      return true;
    }
    if (state_ != State::kEntry) return unexpected("an object");
    state_ = name_ == "__metadata__" ? State::kMetadata : State::kFields;
    tensor_ = {};
    fields_.clear();
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::kNames) {
      if (!names_.insert(value).second) return fail(fmt::format("{} appears twice", shown(value)));
      name_ = value;
      state_ = State::kEntry;
      return true;
    }
    if (state_ == State::kMetadata) {
      if (header_.metadata.contains(value)) {
        return fail(fmt::format("metadata key {} appears twice", shown(value)));
      }
      name_ = value;
      state_ = State::kMetadataValue;
      return true;
    }
    if (value != "dtype" && value != "shape" && value != "data_offsets") {
      return fail(
          fmt::format("tensor {} has an unknown field {}; dtype, shape and data_offsets are "
                      "known",
                      shown(name_), shown(value)));
    }
    if (!fields_.insert(value).second) {
      return fail(fmt::format("tensor {} has '{}' twice", shown(name_), value));
    }
    field_ = value;
    state_ = State::kFieldValue;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kNames) {
      state_ = State::kDone;
      return true;
    }
    if (state_ == State::kFields) {
      if (fields_.size() != 3) {
        return fail(fmt::format("tensor {} needs dtype, shape and data_offsets; it has: {}",
                                shown(name_), fmt::join(fields_, ", ")));
      }
      header_.tensors.emplace(name_, std::move(tensor_));
    }
    state_ = State::kNames;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kFieldValue || field_ == "dtype") return unexpected("an array");
    numbers_.clear();
    state_ = State::kNumbers;
    return true;
  }

  bool end_array() override {
    state_ = State::kFields;
    if (field_ == "shape") {
      tensor_.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      return fail(fmt::format("tensor {}: data_offsets needs 2 numbers, it has {}", shown(name_),
                              numbers_.size()));
    }
    tensor_.begin = numbers_[0];
    tensor_.end = numbers_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format("the header is not valid JSON (at byte {})", position));
  }

 private:
  enum class State {
    kStart,
    kNames,
    kEntry,
    kMetadata,
    kMetadataValue,
    kFields,
    kFieldValue,
    kNumbers,
    kDone
  };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool unexpected(const std::string& what) {
    switch (state_) {
      case State::kStart: return fail("the header must be a JSON object; it is " + what);
      case State::kEntry:
        return fail(fmt::format("{} must be an object; it is {}", shown(name_), what));
      case State::kMetadataValue:
        return fail(fmt::format("metadata {} must be a string; it is {}", shown(name_), what));
      case State::kNumbers:
        return fail(fmt::format("tensor {}: '{}' holds {}; whole numbers from 0 up are needed",
                                shown(name_), field_, what));
      default:
        return fail(fmt::format("tensor {}: '{}' must be {}; it is {}", shown(name_), field_,
                                field_ == "dtype" ? "a string" : "an array of numbers", what));
    }
  }

  State state_ = State::kStart;
  SafetensorsHeader header_;
  std::string problem_;
  std::set<std::string> names_;
  std::string name_;
  TensorEntry tensor_;
  std::set<std::string> fields_;
  std::string field_;
  std::vector<int64_t> numbers_;
};

Status check_entry(const std::string& name, const TensorEntry& tensor, int64_t data_bytes) {
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return fault(
        fmt::format("tensor {}: data_offsets [{}, {}] do not lie in the {} data bytes of the "
                    "file; it is truncated or damaged",
                    shown(name), tensor.begin, tensor.end, data_bytes));
  }
  int64_t bytes = size_of(tensor.type);
  bool overflow = false;
  for (const int64_t extent : tensor.shape) {
    overflow = __builtin_mul_overflow(bytes, extent, &bytes) || overflow;
  }
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  if (empty) bytes = 0;
  if (overflow && !empty) {
    return fault(fmt::format("tensor {}: shape {} has more than 2^63 bytes", shown(name),
                             shape_text(tensor.shape)));
  }
  if (bytes != tensor.end - tensor.begin) {
    return fault(
        fmt::format("tensor {}: {} of shape {} has {} bytes, but data_offsets [{}, {}] span {}",
                    shown(name), tool::name(tensor.type), shape_text(tensor.shape), bytes,
                    tensor.begin, tensor.end, tensor.end - tensor.begin));
  }
  return {};
}

Status check_coverage(const SafetensorsHeader& header, int64_t data_bytes) {
  struct Piece {
    int64_t begin, end;
    const std::string* name;
  };
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : header.tensors) {
    pieces.push_back({tensor.begin, tensor.end, &name});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  const std::string* before = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.begin < covered) {
      return fault(fmt::format("tensors {} and {} overlap: [.., {}] and [{}, ..]", shown(*before),
                               shown(*piece.name), covered, piece.begin));
    }
    if (piece.begin > covered) {
      return fault(fmt::format("bytes {} to {} belong to no tensor", covered, piece.begin));
    }
    covered = piece.end;
    before = piece.name;
  }
  if (covered == data_bytes) return {};
  return fault(fmt::format("bytes {} to {} belong to no tensor", covered, data_bytes));
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes) {
  HeaderReader reader;
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!parsed || !reader.done()) {
    return fault(reader.problem().empty() ? "the header ends early" : reader.problem());
  }
  SafetensorsHeader header = reader.take();
  for (const auto& [name, tensor] : header.tensors) {
    LONGSPAN_CHECK_OK(check_entry(name, tensor, data_bytes));
  }
  LONGSPAN_CHECK_OK(check_coverage(header, data_bytes));
  return header;
}

}  // namespace longspan::tool
