// The few CUDA calls that a context and some memory need; see cuda_memory.h.
#include "devices/cuda_memory.h"

#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/text.h"
#include "devices/cuda_abi.h"

namespace berth {
namespace {

struct Calls {
  cuda::Result (*init)(unsigned flags) = nullptr;
  cuda::Result (*device)(cuda::Device*, int number) = nullptr;
  cuda::Result (*retain)(cuda::Context*, cuda::Device) = nullptr;
  cuda::Result (*push)(cuda::Context) = nullptr;
  cuda::Result (*allocate)(cuda::DevicePointer*, std::size_t) = nullptr;
  cuda::Result (*error_name)(cuda::Result, const char**) = nullptr;
  cuda::Result (*error_text)(cuda::Result, const char**) = nullptr;
};

// Loaded for the rest of the process's life: drivers are not made to be unloaded.
Result<Calls> load(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return fail(
        ErrorKind::no_driver,
        fmt::format("CUDA's library cannot be loaded ({}); install the driver's libcuda.so.1",
                    printable(reason == nullptr ? library : reason)));
  }
  Calls calls;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto*& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  find("cuInit", calls.init);
  find("cuDeviceGet", calls.device);
  find("cuDevicePrimaryCtxRetain", calls.retain);
  find("cuCtxPushCurrent_v2", calls.push);
  find("cuMemAlloc_v2", calls.allocate);
  find("cuGetErrorName", calls.error_name);
  find("cuGetErrorString", calls.error_text);
  if (missing == nullptr) return calls;
  return fail(
      ErrorKind::no_driver,
      fmt::format("CUDA's library lacks {}; install a driver of version 418 or later", missing));
}

std::string describe(const Calls& calls, cuda::Result code) {
  const char* name = nullptr;
  const char* text = nullptr;
  calls.error_name(code, &name);
  calls.error_text(code, &text);
  if (name == nullptr) return fmt::format("CUDA error {}", static_cast<int>(code));
  return printable(text == nullptr ? name : fmt::format("{} ({})", name, text));
}

}  // namespace

Result<void> hold_gpu_memory(const std::string& library, const std::string& uuid, Bytes size) {
  // Read by cuInit: with one visible GPU it takes a fifth of the time that it takes with eight.
  ::setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  const auto calls = load(library);
  if (!calls) return tl::make_unexpected(calls.error());
  cuda::Result code = cuda::success;
  const char* failed = nullptr;
  const auto step = [&](const char* name, auto* function, auto... arguments) {
    if (failed != nullptr) return;
    code = function(arguments...);
    if (code != cuda::success) failed = name;
  };
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  cuda::DevicePointer memory = 0;
  step("cuInit", calls->init, 0U);
  step("cuDeviceGet", calls->device, &device, 0);
  step("cuDevicePrimaryCtxRetain", calls->retain, &context, device);
  step("cuCtxPushCurrent", calls->push, context);  // retained is not yet current
  step("cuMemAlloc", calls->allocate, &memory, static_cast<std::size_t>(size.count));
  if (failed == nullptr) return {};
  return fail(ErrorKind::no_driver, fmt::format("{} answers {}; see who uses the GPU with berth "
                                                "status, or go without the placeholder",
                                                failed, describe(*calls, code)));
}

}  // namespace berth
