// One process of a job in which something goes wrong: run by mpi_failures_test through mpirun.
// Prints "rank=R code=CODE ms=T text=..." about what it saw, and leaves MPI unfinished where it
// must.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "longspan/communicator.h"

namespace {

using namespace longspan;  // a program of its own
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline{2500};
constexpr std::chrono::milliseconds kPatience{40000};
constexpr size_t kLarge = 3 << 20;

struct Message {
  TransferKind kind;
  int peer;
  size_t bytes;
};

Status transfer(Communicator& own, const Message& message, std::chrono::milliseconds deadline) {
  static std::vector<char> memory(kLarge);
  const Transfer one = {message.kind, message.peer, 4, memory.data(), message.bytes};
  LONGSPAN_TRY(const Request request, own.start(std::span(&one, 1)));
  return own.wait(request, deadline);
}

/// Every rank sends to every other one, again and again; rank 1 is killed in the third round.
Status kill_in_all_to_all(Communicator& own, size_t bytes) {
  std::vector<std::vector<char>> memory(static_cast<size_t>(own.size()), std::vector<char>(bytes));
  std::vector<char> sent(bytes);
  for (int round = 0;; ++round) {
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < own.size(); ++peer) {
      char* const data = memory[static_cast<size_t>(peer)].data();
      transfers.push_back({TransferKind::kRecv, peer, 0, data, bytes});
      transfers.push_back({TransferKind::kSend, peer, 0, sent.data(), bytes});
    }
    LONGSPAN_TRY(const Request request, own.start(transfers));
    if (round == 2 && own.rank() == 1) std::raise(SIGKILL);
    LONGSPAN_CHECK_OK(own.wait(request, kDeadline));
  }
}

/// Rank 1 is killed; rank 0 waits for it, the others wait for rank 0 and have far more patience.
Status kill_in_chain(Communicator& own) {
  LONGSPAN_CHECK_OK(transfer(own, {TransferKind::kSend, own.rank(), 1}, kDeadline));
  if (own.rank() == 1) std::raise(SIGKILL);
  const int peer = own.rank() == 0 ? 1 : 0;
  return transfer(own, {TransferKind::kRecv, peer, 8}, own.rank() == 0 ? kDeadline : kPatience);
}

/// Rank 1 gives up with a reason; some wait to send to it, some to receive.
Status abandon(Communicator& own) {
  if (own.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return Error{ErrorCode::kOutOfMemory, "no room for 12 bytes", "test"};
  }
  const TransferKind kind = own.rank() == 0 ? TransferKind::kSend : TransferKind::kRecv;
  return transfer(own, {kind, 1, kLarge}, kPatience);
}

/// Ranks 0 and 1 state different sizes, in both orders and for small and large messages.
Status mismatch(Communicator& own, size_t sent, size_t expected) {
  if (own.rank() == 1) return transfer(own, {TransferKind::kRecv, 0, expected}, kPatience);
  LONGSPAN_CHECK_OK(transfer(own, {TransferKind::kSend, 1, sent}, kPatience));
  // A small message is gone before the other side has looked at it: the answer comes later.
  return transfer(own, {TransferKind::kRecv, 1, 8}, kPatience);
}

/// Both of two ranks wait for the other; rank 1 has far more patience.
Status late(Communicator& own) {
  const auto deadline = own.rank() == 0 ? kDeadline : kPatience;
  return transfer(own, {TransferKind::kRecv, 1 - own.rank(), 8}, deadline);
}

Status run(Communicator& own, std::string_view scene) {
  if (scene == "kill_small") return kill_in_all_to_all(own, 1000);
  if (scene == "kill_large") return kill_in_all_to_all(own, kLarge);
  if (scene == "kill_chain") return kill_in_chain(own);
  if (scene == "abandon") return abandon(own);
  if (scene == "small_mismatch") return mismatch(own, 100, 200);
  if (scene == "large_mismatch") return mismatch(own, kLarge, 1 << 20);
  if (scene == "late") return late(own);
  return Error{ErrorCode::kInvalidArgument, "unknown scene " + std::string(scene), "test"};
}

}  // namespace

int main(int argc, char** argv) {
  auto made = make_mpi_communicator();
  if (argc != 2 || !made.ok()) return 2;
  Communicator& own = **made;
  if (!exchange_words(own, {}, kPatience).ok()) return 2;  // all are up
  const auto begin = Clock::now();
  const Status status = run(own, argv[1]);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  if (status.ok()) return 2;
  own.abandon(status.error());
  const std::string code(name(status.error().code));
  std::printf("rank=%d code=%s ms=%lld text=%s\n", own.rank(), code.c_str(),
              static_cast<long long>(took.count()), status.error().message.c_str());
  std::fflush(stdout);
  const int rank = own.rank();
  made = Error{};  // destroys the communicator, which must not wait for anybody
  std::printf("left=%d\n", rank);
  std::fflush(stdout);
  std::_Exit(0);
}
