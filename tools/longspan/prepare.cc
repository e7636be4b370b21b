#include "prepare.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace longspan::tool {

namespace {

/// What is missing is said in a line.
constexpr const char* kProgram = R"(import sys
try:
    from longspan.prepare.__main__ import main
except ImportError as error:
    print(f"longspan: prepare needs longspan's Python package ({error}): run pip install . in the "
          "root of longspan's sources", file=sys.stderr)
    sys.exit(2)
sys.exit(main()))";

}  // namespace

int become_prepare(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"python3", "-c", kProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  std::fprintf(stderr,
               "longspan: prepare needs python3 with longspan's package, and python3 could not be "
               "started: %s\n",
               std::strerror(errno));
  return 2;
}

}  // namespace longspan::tool
