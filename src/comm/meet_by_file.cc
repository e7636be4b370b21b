#include "comm/meet_by_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/deadline.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "file";
constexpr std::chrono::milliseconds kPause{5};
constexpr uint64_t kMark = 0x6c6f6e677370616e;  // "longspan"

std::string file_of(const FileMeeting& meeting, int rank) {
  return fmt::format("{}.{}", meeting.path, rank);
}

Error stale(const std::string& file, const char* why) {
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("{} {}; remove the files of earlier runs, or give every run a path of its own",
                  file, why),
      kWhere};
}

/// Appears at once and whole.
Status write(const FileMeeting& meeting, std::span<const uint64_t> mine) {
  const std::string file = file_of(meeting, meeting.rank);
  const std::string draft = file + ".new";
  std::error_code failed;
  if (std::filesystem::exists(file, failed)) return stale(file, "is there already");
  std::ofstream out(draft, std::ios::binary | std::ios::trunc);
  const std::array<uint64_t, 2> head = {kMark, static_cast<uint64_t>(meeting.size)};
  out.write(reinterpret_cast<const char*>(head.data()), sizeof head);
  out.write(reinterpret_cast<const char*>(mine.data()),
            static_cast<std::streamsize>(mine.size_bytes()));
  out.close();
  if (out.good()) std::filesystem::rename(draft, file, failed);
  if (out.good() && !failed) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("cannot write {}; give a path in a folder that all ranks can write", file),
      kWhere};
}

/// None while the file is not there.
Result<std::optional<std::vector<uint64_t>>> read(const FileMeeting& meeting, int rank,
                                                  size_t count) {
  using Words = std::optional<std::vector<uint64_t>>;
  const std::string file = file_of(meeting, rank);
  std::ifstream in(file, std::ios::binary);
  if (!in) return Words();
  std::vector<uint64_t> words(count + 2);
  const auto bytes = static_cast<std::streamsize>(words.size() * sizeof(uint64_t));
  in.read(reinterpret_cast<char*>(words.data()), bytes);
  const bool whole = in.gcount() == bytes && in.peek() == std::ifstream::traits_type::eof();
  if (!whole || words[0] != kMark || words[1] != static_cast<uint64_t>(meeting.size)) {
    return stale(file, "is of a meeting of other ranks");
  }
  words.erase(words.begin(), words.begin() + 2);
  return Words(std::move(words));
}

Status check_age(const FileMeeting& meeting, int rank) {
  std::error_code failed;
  const auto written = std::filesystem::last_write_time(file_of(meeting, rank), failed);
  if (failed) return {};
  const auto age = std::filesystem::file_time_type::clock::now() - written;
  if (age <= capped(meeting.deadline)) return {};
  return stale(file_of(meeting, rank), "was written longer ago than ranks wait for each other");
}

}  // namespace

Result<std::vector<uint64_t>> meet_by_file(const FileMeeting& meeting,
                                           std::span<const uint64_t> mine) {
  if (meeting.path.empty() || meeting.rank < 0 || meeting.rank >= meeting.size) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("path \"{}\", rank {} of {}: a path and a rank below the size are "
                             "needed",
                             meeting.path, meeting.rank, meeting.size),
                 kWhere};
  }
  const auto end = deadline_after(meeting.deadline);
  for (int rank = 0; rank < meeting.size; ++rank) LONGSPAN_CHECK_OK(check_age(meeting, rank));
  LONGSPAN_CHECK_OK(write(meeting, mine));
  std::vector<uint64_t> all;
  for (int rank = 0; rank < meeting.size;) {
    LONGSPAN_TRY(const auto words, read(meeting, rank, mine.size()));
    if (words) {
      all.insert(all.end(), words->begin(), words->end());
      ++rank;
    } else if (std::chrono::steady_clock::now() > end) {
      leave_meeting(meeting);
      return Error{ErrorCode::kPeerLost,
                   fmt::format("rank {} did not write {} within {} ms", rank,
                               file_of(meeting, rank), meeting.deadline.count()),
                   kWhere};
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return all;
}

void leave_meeting(const FileMeeting& meeting) {
  std::error_code ignored;
  std::filesystem::remove(file_of(meeting, meeting.rank), ignored);
}

}  // namespace longspan::comm
