// Libraries that are opened when they are first needed.
#pragma once

#include <string>
#include <vector>

#include "longspan/status.h"

namespace longspan {

/// Where cuDNN is: its file, or the directory that has libcudnn.so.9. This one or none is opened;
/// without a path, the copy that the process has mapped, else the first on the loader's path.
/// invalid_argument once cuDNN has been looked for, unsupported when built without it. Thread-safe.
Status set_cudnn_path(const std::string& path);

/// The folder with prepared kernels (see docs/kernels/prepared.md) that the provider prepared uses;
/// without one it declines. Its manifests are read at once: invalid_argument where the folder is no
/// store, or once another one has been used; unsupported names a file that is wrong, or says that
/// longspan was built without the provider. Thread-safe.
Status set_prepared_store(const std::string& folder);

/// Those that were opened so far, in order: "cuDNN 9.19.0 (/usr/lib/libcudnn.so.9)". Thread-safe.
std::vector<std::string> opened_libraries();

}  // namespace longspan
