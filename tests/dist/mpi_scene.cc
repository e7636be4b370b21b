// One process of a job in which something goes wrong: run by mpi_scenes_test through mpirun. Prints
// "rank=R code=CODE ms=T text=..." about what its engine said.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "testkit/conformance.h"
#include "testkit/flight.h"

namespace longspan::testkit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline{2500};
constexpr std::string_view kProblem = "dtype=f32 heads=4/4 dim=16 lengths=200 mask=none";

/// A scene's name is "kill:FORWARD:BACKWARD" or "differ:FIELD".
struct Scene {
  std::string what, first, second;
};

Scene parse(const std::string& text) {
  const size_t a = text.find(':');
  const size_t b = text.find(':', a + 1);
  if (b == std::string::npos) return {text.substr(0, a), text.substr(a + 1), ""};
  return {text.substr(0, a), text.substr(a + 1, b - a - 1), text.substr(b + 1)};
}

/// Rank 1 dies between two rounds; the others go on until an error says so.
Status kill_scene(const Scene& scene, const std::shared_ptr<Communicator>& communicator) {
  const Case c{.problem = std::string(kProblem), .forward = scene.first, .backward = scene.second};
  const tool::Inputs inputs = inputs_of(c);
  Options options = options_of(c);
  options.deadline = kDeadline;
  LONGSPAN_TRY(const auto engine, Engine::create(options, communicator, shared_device()));
  LONGSPAN_TRY(const auto call, engine->prepare(inputs.problem));
  Flight flight = make_flight(inputs, call, communicator->rank());
  for (int round = 0;; ++round) {
    LONGSPAN_CHECK_OK(forward(*engine, flight));
    if (round == 2 && communicator->rank() == 1) std::raise(SIGKILL);
    LONGSPAN_CHECK_OK(backward(*engine, flight));
  }
}

/// Rank 1 asks for something else than the others.
Status differ_scene(const Scene& scene, const std::shared_ptr<Communicator>& communicator) {
  std::string problem(kProblem);
  Options options;
  options.deadline = kDeadline;
  if (communicator->rank() == 1) {
    if (scene.first == "dtype") problem.replace(problem.find("f32"), 3, "f16");
    if (scene.first == "lengths") problem.replace(problem.find("200"), 3, "201");
    if (scene.first == "scale") problem += " scale=0.5";
    if (scene.first == "partition") options.partition = "striped";
  }
  LONGSPAN_TRY(const Problem parsed, parse_problem(problem));
  LONGSPAN_TRY(const auto engine, Engine::create(options, communicator, shared_device()));
  LONGSPAN_TRY([[maybe_unused]] const auto call, engine->prepare(parsed));
  return {};
}

int play(const Scene& scene) {
  auto communicator = make_mpi_communicator(2);
  if (!communicator.ok()) return 3;
  const int rank = (*communicator)->rank();
  const auto begin = Clock::now();
  const Status status =
      scene.what == "kill" ? kill_scene(scene, *communicator) : differ_scene(scene, *communicator);
  const auto taken =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
  const std::string code(status.ok() ? "ok" : name(status.error().code));
  const std::string text = status.ok() ? "" : status.error().message;
  std::printf("rank=%d code=%s ms=%lld text=%s\n", rank, code.c_str(),
              static_cast<long long>(taken), text.c_str());
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace longspan::testkit

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return longspan::testkit::play(longspan::testkit::parse(argv[1]));
}
