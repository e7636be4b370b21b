// A program that starts and ends MPI itself: the communicator is a guest in it. Run by mpirun;
// exits with 0 when all is as it should be. The argument is the thread level to ask for.
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "longspan/communicator.h"

namespace {

bool expect(bool condition, const char* what) {
  if (!condition) std::fprintf(stderr, "not so: %s\n", what);
  return condition;
}

bool works() {
  const std::chrono::milliseconds patience{30000};
  auto made = longspan::make_mpi_communicator();
  if (!expect(made.ok(), "a communicator is made")) return false;
  const std::array<uint64_t, 1> mine = {static_cast<uint64_t>((*made)->rank())};
  // The program's own messages with any tag stay the program's.
  int token = (*made)->rank();
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Isend(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &sent);
  const auto all = longspan::exchange_words(**made, mine, patience);
  if (!expect(all.ok() && all->back() + 1 == all->size(), "words are exchanged")) return false;
  for (int i = 0; token == 0 && i < (*made)->size(); ++i) {
    int other = -1;
    MPI_Recv(&other, 1, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!expect(other == i, "the program's message arrives")) return false;
  }
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  made = longspan::Error{};  // the last communicator goes; MPI must stay
  int finalized = 1;
  MPI_Finalized(&finalized);
  return expect(finalized == 0, "MPI still runs");
}

bool refused() {
  const auto made = longspan::make_mpi_communicator();
  return expect(!made.ok() && made.error().code == longspan::ErrorCode::kUnsupported &&
                    made.error().message.find("MPI_THREAD_SERIALIZED") != std::string::npos,
                "a thread level that is too low is refused by name");
}

bool over() {
  const auto made = longspan::make_mpi_communicator();
  return expect(!made.ok() && made.error().message.find("finalised") != std::string::npos,
                "after MPI_Finalize there is no communicator");
}

}  // namespace

int main(int argc, char** argv) {
  const bool low = argc == 2 && std::string(argv[1]) == "single";
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, low ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED, &level);
  const bool good = low ? refused() : works();
  MPI_Finalize();
  return good && over() ? EXIT_SUCCESS : EXIT_FAILURE;
}
