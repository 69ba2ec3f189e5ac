// Memory of one GPU, taken through the CUDA driver API: libcuda.so.1, found at run time.
#pragma once

#include <string>

#include "base/quantity.h"
#include "base/result.h"

namespace berth {

// Takes `size` on the GPU of that UUID, beside the context that this costs, and keeps it until this
// process ends. Once per process, and only in a helper process (helper_process.h): it makes this
// GPU the only one that the process sees, and CUDA can hang. `library` is what to load, as for
// dlopen(). The error (ErrorKind::no_driver) names the call and CUDA's own name of the error.
Result<void> allocate_gpu_memory(const std::string& library, const std::string& uuid, Bytes size);

}  // namespace berth
