// measured.json as text, which CMake writes into a source file.
#pragma once

namespace longspan {

extern const char kMeasuredText[];

}  // namespace longspan
