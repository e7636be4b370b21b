// lists.txt as text, which CMake writes into a source file.
#pragma once

namespace longspan::prepared {

extern const char kListsText[];

}  // namespace longspan::prepared
