// Errors as values. No exception crosses longspan's edge.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace longspan {

enum class ErrorCode {
  kInvalidArgument,  // the caller must change the input
  kUnsupported,      // nobody offers this problem; the message carries the declines
  kGuardFailed,      // a promise did not hold at run time
  kPeerLost,         // another rank died, gave up or did not answer within the deadline
  kTimeout,          // a wait that involves no peer outlasted its deadline
  kOutOfMemory,
  kDriver,    // a device or system library failed
  kInternal,  // a defect of longspan
};

/// "invalid_argument", "peer_lost", ...: the names used in messages, JSON and bindings.
std::string_view name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // says what is wrong, the value, the limit and the remedy
  std::string where;    // the part that noticed: "problem", "safetensors", "mpi", ...

  /// "invalid_argument (problem): ..."
  std::string text() const;
};

/// A value of T, or an Error. Thread-compatible, like the T it holds.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// Only when ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

  /// Only when not ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  /// Only when not ok().
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace longspan

#define LONGSPAN_CONCAT_INNER(a, b) a##b
#define LONGSPAN_CONCAT(a, b) LONGSPAN_CONCAT_INNER(a, b)
#define LONGSPAN_TRY_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                               \
  if (!temporary.ok()) return std::move(temporary).error();    \
  declaration = std::move(temporary).value()

/// LONGSPAN_TRY(auto plan, prepare(key)); declares `plan`, or returns the error to the caller.
#define LONGSPAN_TRY(declaration, expression) \
  LONGSPAN_TRY_INNER(LONGSPAN_CONCAT(result_, __LINE__), declaration, expression)

/// Returns the error of a Status to the caller.
#define LONGSPAN_CHECK_OK(expression)                                                  \
  do {                                                                                 \
    if (auto status_ = (expression); !status_.ok()) return std::move(status_).error(); \
  } while (false)
