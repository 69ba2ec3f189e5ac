// Asking the CUDA driver that is loaded, if it is; see cuda.h.
#include "python/src/cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <string_view>

namespace berth::python {
namespace {

// Of the libraries that are loaded: dlopen() would search the file system for one that is not.
bool is_loaded() {
  return ::dl_iterate_phdr(
             [](dl_phdr_info* info, std::size_t, void*) {
               const std::string_view path = info->dlpi_name;
               return path.find("libcuda.so") != std::string_view::npos ? 1 : 0;
             },
             nullptr) != 0;
}

}  // namespace

bool cuda_is_started() {
  constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED
  if (!is_loaded()) return false;
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
