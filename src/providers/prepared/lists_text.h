// lists.txt and the packages.txt of the exporters as text, which CMake writes into a source file.
#pragma once

namespace longspan::prepared {

extern const char kListsText[];
extern const char kPackagesText[];

}  // namespace longspan::prepared
