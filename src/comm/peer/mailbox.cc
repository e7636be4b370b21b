#include "comm/peer/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace longspan::comm {
namespace {

size_t index(int value) { return static_cast<size_t>(value); }

}  // namespace

Mailbox::Mailbox(const Region& region, int rank)
    : region_(region),
      rank_(rank),
      free_(index(region.ranks()), std::vector<int>(kSlots)),
      inboxes_(index(region.ranks())) {
  for (std::vector<int>& slots : free_) std::iota(slots.rbegin(), slots.rend(), 0);
}

Result<int> Mailbox::take_slot(int peer) {
  std::vector<int>& slots = free_[index(peer)];
  if (slots.empty()) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("all {} slots for messages of rank {} are in use; each message of a "
                             "captured graph keeps one: capture less often, or into a new "
                             "communicator",
                             kSlots, peer),
                 "peer"};
  }
  const int slot = slots.back();
  slots.pop_back();
  return slot;
}

void Mailbox::give_back(int peer, int slot) { free_[index(peer)].push_back(slot); }

void Mailbox::post(int peer, int slot, const Letter& letter) {
  Route& route = region_.route(rank_, peer);
  Mail& mail = route.slots[index(slot)];
  mail.tag = letter.tag;
  mail.captured = letter.captured ? 1 : 0;
  mail.bytes = letter.bytes;
  mail.data = letter.data;
  mail.state.store(Mail::kPosted, std::memory_order_relaxed);
  const uint32_t count = route.count.load(std::memory_order_relaxed);
  route.posted[count % kSlots] = static_cast<uint32_t>(slot);
  route.count.store(count + 1, std::memory_order_release);
}

uint32_t Mailbox::state(int peer, int slot) const {
  return region_.route(rank_, peer).slots[index(slot)].state.load(std::memory_order_acquire);
}

uint64_t Mailbox::sent(int peer, int slot) const {
  return region_.route(rank_, peer).slots[index(slot)].sent;
}

void Mailbox::look() {
  for (int peer = 0; peer < region_.ranks(); ++peer) {
    const Route& route = region_.route(peer, rank_);
    Inbox& inbox = inboxes_[index(peer)];
    const uint32_t count = route.count.load(std::memory_order_acquire);
    for (; inbox.seen != count; ++inbox.seen) {
      inbox.waiting.push_back(static_cast<int>(route.posted[inbox.seen % kSlots]));
    }
  }
}

Mailbox::Offer Mailbox::find(int peer, uint32_t tag) const {
  const Route& route = region_.route(peer, rank_);
  for (const int slot : inboxes_[index(peer)].waiting) {
    const Mail& mail = route.slots[index(slot)];
    if (mail.tag != tag) continue;
    return {.slot = slot,
            .letter = {.tag = mail.tag,
                       .captured = mail.captured != 0,
                       .bytes = mail.bytes,
                       .data = mail.data}};
  }
  return {};
}

void Mailbox::tell(int peer, int slot, Mail::State state) {
  region_.route(peer, rank_).slots[index(slot)].state.store(state, std::memory_order_release);
}

void Mailbox::claim(int peer, int slot) {
  std::vector<int>& waiting = inboxes_[index(peer)].waiting;
  waiting.erase(std::find(waiting.begin(), waiting.end(), slot));
}

void Mailbox::take(int peer, int slot) {
  claim(peer, slot);
  confirm(peer, slot);
}

void Mailbox::refuse(int peer, int slot, uint64_t sent) {
  region_.route(peer, rank_).slots[index(slot)].sent = sent;
  claim(peer, slot);
  tell(peer, slot, Mail::kRefused);
}

}  // namespace longspan::comm
