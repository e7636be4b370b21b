// Which versions of the engines' packages may be used.
#pragma once

#include "longspan/status.h"

namespace longspan::prepared {

struct Manifest;

/// unsupported names the first package of the manifest's engine whose version is not the one that
/// the binder was written against: buffers and their order are no interface of these packages.
Status known_versions(const Manifest& manifest);

}  // namespace longspan::prepared
