#include "longspan/device.h"

#include <algorithm>
#include <thread>

#include "base/workers.h"

namespace longspan {

Device cpu_device(int threads) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int count = threads > 0 ? threads : cores;
  return {.name = "cpu", .threads = count, .workers = std::make_shared<Workers>(count)};
}

}  // namespace longspan
