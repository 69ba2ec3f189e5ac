// The CUDA calls that create a context and allocate memory; see cuda_memory.h.
#include "devices/cuda_memory.h"

#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/text.h"
#include "devices/cuda_abi.h"

namespace berth {
namespace {

struct CudaApi {
  cuda::Result (*init)(unsigned flags) = nullptr;
  cuda::Result (*device)(cuda::Device*, int number) = nullptr;
  cuda::Result (*retain)(cuda::Context*, cuda::Device) = nullptr;
  cuda::Result (*push)(cuda::Context) = nullptr;
  cuda::Result (*allocate)(cuda::DevicePointer*, std::size_t) = nullptr;
  cuda::Result (*error_name)(cuda::Result, const char**) = nullptr;
  cuda::Result (*error_text)(cuda::Result, const char**) = nullptr;
};

// The library stays loaded until the process exits: drivers do not support unloading.
Result<CudaApi> load_cuda(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return fail(
        ErrorKind::no_driver,
        fmt::format("the CUDA library cannot be loaded ({}); install the driver's libcuda.so.1",
                    printable(reason == nullptr ? library : reason)));
  }
  CudaApi api;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto*& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  find("cuInit", api.init);
  find("cuDeviceGet", api.device);
  find("cuDevicePrimaryCtxRetain", api.retain);
  find("cuCtxPushCurrent_v2", api.push);
  find("cuMemAlloc_v2", api.allocate);
  find("cuGetErrorName", api.error_name);
  find("cuGetErrorString", api.error_text);
  if (missing == nullptr) return api;
  return fail(
      ErrorKind::no_driver,
      fmt::format("the CUDA library lacks {}; install a driver of version 418 or later", missing));
}

std::string describe_error(const CudaApi& api, cuda::Result code) {
  const char* name = nullptr;
  const char* text = nullptr;
  api.error_name(code, &name);
  api.error_text(code, &text);
  if (name == nullptr) return fmt::format("CUDA error {}", static_cast<int>(code));
  return printable(text == nullptr ? name : fmt::format("{} ({})", name, text));
}

}  // namespace

Result<void> allocate_gpu_memory(const std::string& library, const std::string& uuid, Bytes size) {
  // cuInit reads the variable. With one visible GPU it takes a fifth of its time with eight.
  ::setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  const CudaApi api = TRY(load_cuda(library));
  cuda::Result code = cuda::success;
  const char* failed = nullptr;
  const auto call = [&](const char* name, auto* function, auto... arguments) {
    if (failed != nullptr) return;
    code = function(arguments...);
    if (code != cuda::success) failed = name;
  };
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  cuda::DevicePointer memory = 0;
  call("cuInit", api.init, 0U);
  call("cuDeviceGet", api.device, &device, 0);
  call("cuDevicePrimaryCtxRetain", api.retain, &context, device);
  call("cuCtxPushCurrent", api.push, context);  // retaining a context does not make it current
  call("cuMemAlloc", api.allocate, &memory, static_cast<std::size_t>(size.count));
  if (failed == nullptr) return {};
  return fail(ErrorKind::no_driver, fmt::format("{} failed with {}; see 'berth status' for the "
                                                "processes on the GPU, or omit --placeholder",
                                                failed, describe_error(api, code)));
}

}  // namespace berth
