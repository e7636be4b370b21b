// What a rank tells its peers beside the data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace longspan::comm {

enum class NoticeKind : uint32_t {
  kLeft,      // the sender gave up; the text is its reason
  kMismatch,  // the sender of the notice expected another size; the text names both
};

/// Small enough that MPI sends it eagerly: it is on its way when the sender dies.
struct Notice {
  NoticeKind kind = NoticeKind::kLeft;
  uint32_t length = 0;
  std::array<char, 1000> text = {};

  static Notice make(NoticeKind kind, std::string_view text) {
    Notice notice;
    notice.kind = kind;
    notice.length = static_cast<uint32_t>(std::min(text.size(), notice.text.size()));
    std::copy_n(text.begin(), notice.length, notice.text.begin());
    return notice;
  }
  std::string str() const { return {text.data(), std::min<size_t>(length, text.size())}; }
};

}  // namespace longspan::comm
