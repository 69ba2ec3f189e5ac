// Allocates GPU memory through the CUDA driver API (libcuda.so.1, loaded at run time).
#pragma once

#include <string>

#include "base/quantity.h"
#include "base/result.h"

namespace berth {

// Allocates `size` on the GPU with that UUID, in addition to the memory of the CUDA context, and
// keeps it until this process exits. Call it at most once in a process, and only in a helper
// process (helper_process.h): it makes this GPU the only one that the process sees, and CUDA can
// hang. `library` is a name or path for dlopen(). The error (ErrorKind::no_driver) contains the
// name of the call and CUDA's name of the error.
Result<void> allocate_gpu_memory(const std::string& library, const std::string& uuid, Bytes size);

}  // namespace berth
