#include "rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace longspan::xla {
namespace {

Error unexpected(const Schedule& schedule, std::string what) {
  return {ErrorCode::kInternal,
          fmt::format("{} of rank {}: {}", schedule.strategy, schedule.rank, what), "rounds"};
}

const Buffer& buffer(const Schedule& schedule, BufferId id) {
  return schedule.buffers[static_cast<size_t>(id)];
}

/// What travels between two ranks, and the receiver's tiles on it.
struct Delivery {
  int64_t rows = 0;
  std::vector<RowRange> sent;
  std::vector<PlacedTile> tiles;
};

/// Indexed [receiver][sender]; the diagonal is the own keys.
using Deliveries = std::vector<std::vector<Delivery>>;

BufferId keys_in(const Schedule& schedule, const Message& message) {
  for (const BufferId id : message.buffers) {
    if (buffer(schedule, id).quantity == Quantity::kK) return id;
  }
  return kNone;
}

/// Calls body(message, key buffer) for every message of the kind that carries keys.
template <class Body>
Status for_key_messages(const Schedule& schedule, TransferKind kind, Body&& body) {
  for (const Step& step : schedule.steps) {
    for (const Message& message : step.messages) {
      if (message.kind != kind) continue;
      const BufferId keys = keys_in(schedule, message);
      if (keys != kNone) LONGSPAN_CHECK_OK(body(message, keys));
    }
  }
  return {};
}

Result<std::vector<RowRange>> ranges_into(const Schedule& schedule, BufferId keys) {
  std::vector<RowRange> ranges;
  for (const Step& step : schedule.steps) {
    for (const Copy& copy : step.copies) {
      if (copy.dst != keys) continue;
      if (copy.src_step != 1 || copy.dst_step != 1) {
        return unexpected(schedule, "rows of a message are not consecutive");
      }
      ranges.push_back({copy.src_row, copy.dst_row, copy.rows});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const RowRange& a, const RowRange& b) { return a.source < b.source; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].target < ranges[i - 1].target) {
      return unexpected(schedule, "rows of a message change their order");
    }
  }
  return ranges;
}

Status add_sent(Deliveries& all, const Schedule& schedule) {
  return for_key_messages(
      schedule, TransferKind::kSend, [&](const Message& message, BufferId keys) -> Status {
        Delivery& to = all[static_cast<size_t>(message.peer)][static_cast<size_t>(schedule.rank)];
        if (!to.sent.empty()) return unexpected(schedule, "two messages of keys to one rank");
        LONGSPAN_TRY(to.sent, ranges_into(schedule, keys));
        to.rows = buffer(schedule, keys).rows;
        return {};
      });
}

/// The rank that a part's keys come from.
Result<int> sender_of(const Schedule& schedule, const Part& part) {
  if (buffer(schedule, part.k).space == Space::kOperand) return schedule.rank;
  int sender = kNone;
  LONGSPAN_CHECK_OK(for_key_messages(schedule, TransferKind::kRecv,
                                     [&](const Message& message, BufferId keys) -> Status {
                                       if (keys == part.k) sender = message.peer;
                                       return {};
                                     }));
  if (sender == kNone) return unexpected(schedule, "keys of a part come from nowhere");
  return sender;
}

Status add_tiles(Deliveries& all, const Schedule& schedule) {
  for (const Step& step : schedule.steps) {
    for (const Part& part : step.parts) {
      LONGSPAN_TRY(const int sender, sender_of(schedule, part));
      std::vector<PlacedTile>& tiles =
          all[static_cast<size_t>(schedule.rank)][static_cast<size_t>(sender)].tiles;
      tiles.insert(tiles.end(), part.tiles.begin(), part.tiles.end());
    }
  }
  return {};
}

int64_t largest_shard(std::span<const Schedule> schedules) {
  int64_t rows = 0;
  for (const Schedule& schedule : schedules) {
    for (const Buffer& b : schedule.buffers) {
      if (b.space == Space::kOperand && b.quantity == Quantity::kK) rows = std::max(rows, b.rows);
    }
  }
  return rows;
}

Rounds as_rounds(Deliveries all, Rounds result) {
  const size_t ranks = all.size();
  result.tiles.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) result.tiles[r].push_back(std::move(all[r][r].tiles));
  for (size_t distance = 1; distance < ranks; ++distance) {
    Round round{.distance = static_cast<int>(distance), .sent = {}};
    round.sent.resize(ranks);
    std::vector<std::vector<PlacedTile>> tiles(ranks);
    for (size_t sender = 0; sender < ranks; ++sender) {
      const size_t receiver = (sender + distance) % ranks;
      Delivery& delivery = all[receiver][sender];
      round.rows = std::max(round.rows, delivery.rows);
      round.sent[sender] = std::move(delivery.sent);
      tiles[receiver] = std::move(delivery.tiles);
    }
    if (round.rows == 0) continue;
    result.rounds.push_back(std::move(round));
    for (size_t r = 0; r < ranks; ++r) result.tiles[r].push_back(std::move(tiles[r]));
  }
  return result;
}

/// The row in its sender's shard of row `row` of a message.
int64_t source_row(const Delivery& delivery, int64_t row) {
  const auto after =
      std::upper_bound(delivery.sent.begin(), delivery.sent.end(), row,
                       [](int64_t value, const RowRange& range) { return value < range.target; });
  const RowRange& range = *std::prev(after);
  return range.source + row - range.target;
}

Rounds as_gather(Deliveries all, Rounds result) {
  const size_t ranks = all.size();
  result.tiles.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    std::vector<PlacedTile> tiles;
    for (size_t distance = 0; distance < ranks; ++distance) {
      const size_t sender = (r + ranks - distance) % ranks;
      for (PlacedTile tile : all[r][sender].tiles) {
        if (distance > 0) tile.k_row = source_row(all[r][sender], tile.k_row);
        tile.k_row += static_cast<int64_t>(sender) * result.shard_rows;
        tiles.push_back(tile);
      }
    }
    result.tiles[r].push_back(std::move(tiles));
  }
  return result;
}

/// Whether keys come in one step (largest logits do in any strategy).
bool gathers(const Schedule& schedule) {
  const auto brings_keys = [&](const Message& message) {
    return keys_in(schedule, message) != kNone;
  };
  return std::any_of(schedule.steps.begin(), schedule.steps.end(), [&](const Step& step) {
    return step.kind == StepKind::kAllGather &&
           std::any_of(step.messages.begin(), step.messages.end(), brings_keys);
  });
}

}  // namespace

int64_t Rounds::key_rows() const {
  if (gather) return shard_rows * static_cast<int64_t>(tiles.size());
  int64_t rows = shard_rows;
  for (const Round& round : rounds) rows = std::max(rows, round.rows);
  return rows;
}

Result<Rounds> rounds_of(std::span<const Schedule> schedules) {
  Deliveries all(schedules.size(), std::vector<Delivery>(schedules.size()));
  for (const Schedule& schedule : schedules) {
    LONGSPAN_CHECK_OK(add_sent(all, schedule));
    LONGSPAN_CHECK_OK(add_tiles(all, schedule));
  }
  Rounds result;
  result.gather = std::any_of(schedules.begin(), schedules.end(), gathers);
  result.shard_rows = largest_shard(schedules);
  return result.gather ? as_gather(std::move(all), std::move(result))
                       : as_rounds(std::move(all), std::move(result));
}

}  // namespace longspan::xla
