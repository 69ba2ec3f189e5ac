// Asking the CUDA driver that is loaded, if it is; see cuda.h.
#include "python/src/cuda.h"

#include <dlfcn.h>

namespace berth::python {

bool cuda_is_started() {
  constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  // Answers at once, whatever state the driver is in, and changes nothing.
  auto* count = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  int devices = 0;
  const bool started = count != nullptr && count(&devices) != kNotInitialized;
  ::dlclose(library);
  return started;
}

}  // namespace berth::python
