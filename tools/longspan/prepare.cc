#include "prepare.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace longspan::tool {

int become_prepare(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"python3", "-m", "longspan.prepare"};
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
