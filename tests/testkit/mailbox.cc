#include "testkit/mailbox.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace longspan::testkit {
namespace {

struct Address {
  int from = 0;
  int to = 0;
  uint32_t tag = 0;
  auto operator<=>(const Address&) const = default;
};

using Letter = std::vector<std::byte>;

class Boxes {
 public:
  void put(const Address& address, Letter letter) {
    const std::lock_guard lock(mutex_);
    letters_[{address, sent_[address]++}] = std::move(letter);
    arrived_.notify_all();
  }

  /// Which letter of the address the next receive will get.
  int64_t ticket(const Address& address) {
    const std::lock_guard lock(mutex_);
    return asked_[address]++;
  }

  std::optional<Letter> take(const Address& address, int64_t ticket,
                             std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return letters_.count({address, ticket}) > 0; };
    if (!arrived_.wait_for(lock, deadline,
                           [&] { return there() || gone_.count(address.from) > 0; }) ||
        !there()) {
      return std::nullopt;
    }
    auto node = letters_.extract({address, ticket});
    return std::move(node.mapped());
  }

  void leave(int rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    gone_[rank] = reason;
    arrived_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<Address, int64_t>, Letter> letters_;
  std::map<Address, int64_t> sent_, asked_;
  std::map<int, std::string> gone_;
};

struct Expected {
  Address address;
  int64_t ticket = 0;
  Transfer transfer;
};

/// One rank's side.
class Member {
 public:
  Member(std::shared_ptr<Boxes> boxes, int rank) : boxes_(std::move(boxes)), rank_(rank) {}

  Result<Request> start(std::span<const Transfer> transfers) {
    const int64_t id = next_++;
    std::vector<Expected>& expected = open_[id];
    for (const Transfer& t : transfers) {
      if (t.kind == TransferKind::kSend) {
        const auto* data = static_cast<const std::byte*>(t.data);
        boxes_->put({rank_, t.peer, t.tag}, Letter(data, data + t.bytes));
        continue;
      }
      const Address address{t.peer, rank_, t.tag};
      expected.push_back({address, boxes_->ticket(address), t});
    }
    return Request{id};
  }

  Status wait(Request request, std::chrono::milliseconds deadline) {
    for (const Expected& e : open_.at(request.id)) {
      const auto letter = boxes_->take(e.address, e.ticket, deadline);
      if (!letter) {
        return Error{ErrorCode::kPeerLost,
                     "rank " + std::to_string(e.address.from) + " sent nothing", "mailbox"};
      }
      if (letter->size() != e.transfer.bytes) {
        return Error{ErrorCode::kInvalidArgument, "the letter has another size", "mailbox"};
      }
      if (!letter->empty()) std::memcpy(e.transfer.data, letter->data(), letter->size());
    }
    open_.erase(request.id);
    return {};
  }

  void leave(const Error& reason) { boxes_->leave(rank_, reason.text()); }

 private:
  std::shared_ptr<Boxes> boxes_;
  int rank_;
  int64_t next_ = 0;
  std::map<int64_t, std::vector<Expected>> open_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_mailbox_communicators(const Topology& topology) {
  const auto boxes = std::make_shared<Boxes>();
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const auto member = std::make_shared<Member>(boxes, rank);
    CallbackGroup group;
    group.rank = rank;
    group.topology = topology;
    group.start = [member](std::span<const Transfer> transfers) {
      return member->start(transfers);
    };
    group.wait = [member](Request request, std::chrono::milliseconds deadline) {
      return member->wait(request, deadline);
    };
    group.abandon = [member](const Error& reason) { member->leave(reason); };
    communicators.push_back(make_callback_communicator(std::move(group)).value());
  }
  return communicators;
}

}  // namespace longspan::testkit
