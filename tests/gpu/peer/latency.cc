// Prints what a message between two ranks costs, and the host time of a call over two ranks. Ranks
// are threads, on two devices where there are two.
// usage: gpu_peer_latency [peer|nccl]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "communicators.h"
#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{30000};

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().text());
    std::exit(1);
  }
  return std::move(result).value();
}

void require(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.error().text());
  std::exit(1);
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::vector<Device> two_devices() {
  const int count = must(cuda_device_count());
  return {must(cuda_device(0)), must(cuda_device(count > 1 ? 1 : 0))};
}

/// Calls body(communicator) on a thread for each of two ranks.
template <class Body>
void on_two(const std::string& communicator, const std::vector<Device>& devices, Body&& body) {
  const Topology topology = Topology::blocks(2, 1);
  const tool::MakeRank make_rank =
      must(tool::make_ranks({.name = communicator, .topology = topology, .devices = devices}));
  testkit::for_each_rank(make_threads_communicators(topology),
                         [&](const std::shared_ptr<Communicator>& seat) {
                           const auto rank = static_cast<size_t>(seat->rank());
                           const cuda::DeviceScope scope(devices[rank].ordinal);
                           body(must(make_rank(rank)));
                         });
}

/// Sends or receives one message.
Status pass(Communicator& own, void* data, size_t bytes, Stream stream) {
  const Transfer transfer{own.rank() == 0 ? TransferKind::kSend : TransferKind::kRecv,
                          1 - own.rank(), 1, data, bytes};
  LONGSPAN_TRY(const Request request, own.start_on({&transfer, 1}, stream));
  return own.wait_on(request, stream, kPatience);
}

/// Medians over rounds, of one message among `count` in a row.
struct Cost {
  double device_us = 0, host_us = 0;
};

template <class Queue>
Cost cost_of(std::barrier<>& together, Stream stream, int count, Queue&& queue) {
  std::vector<double> device, host;
  for (int round = 0; round < 7; ++round) {
    together.arrive_and_wait();
    const auto begin = Clock::now();
    queue();
    host.push_back(microseconds_since(begin) / count);
    require(cuda::synchronize(stream));
    device.push_back(microseconds_since(begin) / count);
  }
  return {.device_us = median(std::move(device)), .host_us = median(std::move(host))};
}

void measure_messages(const std::string& communicator, const std::vector<Device>& devices) {
  std::barrier<> together(2);
  fmt::print("message of     eager us   host us   in a graph us    GB/s\n");
  on_two(communicator, devices, [&](const std::shared_ptr<Communicator>& own) {
    const auto stream = must(cuda::OwnedStream::make());
    constexpr size_t kLargest = size_t{256} << 20;
    const auto memory = must(cuda::Memory::make(kLargest));
    for (size_t bytes = 1024; bytes <= kLargest; bytes *= 4) {
      const int count = bytes > (size_t{16} << 20) ? 8 : 50;
      const auto queue = [&] {
        for (int i = 0; i < count; ++i) {
          require(pass(*own, memory.data(), bytes, stream.get()));
        }
      };
      const Cost eager = cost_of(together, stream.get(), count, queue);
      const Graph graph(stream.get(), [&]() -> Status {
        queue();
        return {};
      });
      const Cost captured = cost_of(together, stream.get(), count, [&graph] { graph.launch(); });
      if (own->rank() == 0) {
        fmt::print("{:9} B {:11.2f} {:9.2f} {:15.2f} {:7.1f}\n", bytes, eager.device_us,
                   eager.host_us, captured.device_us,
                   static_cast<double>(bytes) / captured.device_us * 1e-3);
      }
      together.arrive_and_wait();
    }
  });
}

void measure_calls(const std::string& communicator, const std::vector<Device>& devices,
                   const std::string& strategy) {
  testkit::Case c;
  c.problem = "dtype=bf16 heads=8/2 dim=64 lengths=512 mask=causal";
  c.ranks = 2;
  c.forward = c.backward = strategy;
  c.partition = "zigzag";
  c.provider = "cuda/reference";
  const tool::Inputs inputs = testkit::inputs_of(c);
  std::barrier<> together(2);
  on_two(communicator, devices, [&](const std::shared_ptr<Communicator>& own) {
    const Device& device = devices[static_cast<size_t>(own->rank())];
    const auto stream = must(cuda::OwnedStream::make());
    const auto engine = must(Engine::create(testkit::options_of(c), own, device));
    auto call = must(engine->prepare(inputs.problem));
    const auto flight = must(DeviceFlight::make(inputs, std::move(call), own, device));
    require(flight->load(inputs));
    std::vector<double> forward, backward;
    for (int round = 0; round < 40; ++round) {
      together.arrive_and_wait();
      auto begin = Clock::now();
      require(flight->forward(*engine, stream.get()));
      forward.push_back(microseconds_since(begin));
      require(cuda::synchronize(stream.get()));
      together.arrive_and_wait();
      begin = Clock::now();
      require(flight->backward(*engine, stream.get()));
      backward.push_back(microseconds_since(begin));
      require(cuda::synchronize(stream.get()));
    }
    if (own->rank() == 0) {
      fmt::print("{:12} host us a call: forward {:.1f}, backward {:.1f}\n", strategy,
                 median(std::move(forward)), median(std::move(backward)));
    }
    together.arrive_and_wait();
  });
}

void measure_all(const std::string& communicator) {
  const std::vector<Device> devices = two_devices();
  fmt::print("{}: ranks on {} and {}\n", communicator, devices[0].name, devices[1].name);
  for (const char* const strategy : {"ring", "all_gather", "all_to_all"}) {
    measure_calls(communicator, devices, strategy);
  }
  measure_messages(communicator, devices);
}

}  // namespace
}  // namespace longspan::testing

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  longspan::testing::measure_all(argc > 1 ? argv[1] : "peer");
  return 0;
}
